"""A job's containers: processes with a clean environment that see data sources at the containers' paths only.

With `isolate` (root) each has mounts and processes of its own; otherwise a link leads from the container's path to the
data source, which must be made where this user may.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

#: Names the job that a process belongs to.
MARK = "DLC_FAKE_JOB"
#: Its own end outlives whoever started it: the exit code goes to a file.
_WRAPPER = 'trap : TERM; sh -c "$1" > log 2>&1 < /dev/null; echo $? > exit.draft; mv exit.draft exit'


@dataclass(frozen=True, kw_only=True)
class Source:
    """A data source: a folder, and where it is mounted unless a job says otherwise."""

    folder: Path
    mount: str


@dataclass(kw_only=True)
class Containers:
    folder: Path
    sources: Mapping[str, Source]
    #: The environment that the image brings.
    image: Mapping[str, str] = field(default_factory=lambda: {"PATH": os.environ.get("PATH", os.defpath)})
    isolate: bool = False
    #: What nobody in a container may see, when isolated.
    hidden: tuple[Path, ...] = ()
    _children: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, id: str, request: Mapping[str, Any]) -> list[tuple[int, float]]:
        """(pid, start time) of each."""
        mounts = {source.get("MountPath") or self._source(source).mount: self._source(source).folder
                  for source in request.get("DataSources", ())}  # fmt: skip
        pods = [(spec, index) for spec in request["JobSpecs"] for index in range(spec["PodCount"])]
        started = []
        for number, (spec, index) in enumerate(pods):
            folder = self.folder / id / str(number)
            folder.mkdir(parents=True)
            roles = _role(id, request, spec["Type"], index, number, len(pods))
            environment = {**self.image, **request.get("Envs", {}), **roles, MARK: id}
            started.append(self._start(folder, request["UserCommand"], environment, mounts))
        return started

    def _source(self, source: Mapping[str, str]) -> Source:
        return self.sources[source["DataSourceId"]]

    def _start(
        self, folder: Path, command: str, environment: Mapping[str, str], mounts: Mapping[str, Path]
    ) -> tuple[int, float]:
        inner = ["/bin/sh", "-c", _WRAPPER, "container", command]
        argv = self._isolated(inner, mounts) if self.isolate else _linked(inner, mounts)
        process = subprocess.Popen(
            argv, cwd=folder, env=dict(environment), start_new_session=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self._children[process.pid] = process
        return process.pid, psutil.Process(process.pid).create_time()

    def _isolated(self, inner: list[str], mounts: Mapping[str, Path]) -> list[str]:
        steps = ["set -e"]
        for path, source in mounts.items():
            steps += [f"mkdir -p {shlex.quote(path)}", f"mount --bind {shlex.quote(str(source))} {shlex.quote(path)}"]
        for path in self.hidden:
            steps.append(f"mount -t tmpfs none {shlex.quote(str(path))}")
        steps.append('exec "$@"')
        return ["unshare", "--mount", "/bin/sh", "-c", "\n".join(steps), "mounts", *inner]

    def end(self, id: str, containers: list[tuple[int, float]]) -> int | None:
        """The job's exit code once all have ended; of several, the first that is not 0. None: it runs."""
        self._reap()
        codes = [self._exit_code(id, number, *one) for number, one in enumerate(containers)]
        if any(code is None for code in codes):
            return None
        return next((code for code in codes if code), 0)

    def _exit_code(self, id: str, number: int, pid: int, started_s: float) -> int | None:
        with suppress(FileNotFoundError, ValueError):
            return int((self.folder / id / str(number) / "exit").read_text())
        return None if _is_alive(pid, started_s) else 137

    def signal(self, id: str, containers: list[tuple[int, float]], number: int) -> None:
        """A container that is killed takes all of its processes with it."""
        for pid, started_s in containers:
            if _is_alive(pid, started_s):
                with suppress(ProcessLookupError):
                    os.killpg(pid, number)
        if number == signal.SIGKILL:
            for process in _processes_of(id):
                with suppress(psutil.Error):
                    process.kill()
        self._reap()

    def log(self, id: str, number: int) -> str:
        with suppress(FileNotFoundError):
            return (self.folder / id / str(number) / "log").read_text(errors="replace")
        return ""

    def close(self) -> None:
        """Waits for those that this process started; they have ended or were killed."""
        for child in self._children.values():
            child.wait()

    def _reap(self) -> None:
        for pid in [pid for pid, child in self._children.items() if child.poll() is not None]:
            del self._children[pid]


def _linked(inner: list[str], mounts: Mapping[str, Path]) -> list[str]:
    for path, source in mounts.items():
        link = Path(path.rstrip("/"))
        if link.is_symlink() or link.resolve() == source.resolve():
            continue
        link.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            link.symlink_to(source)
    return inner


def _role(
    id: str, request: Mapping[str, Any], type_: str, index: int, number: int, count: int
) -> dict[str, str]:  # fmt: skip
    """The variables that the documentation names."""
    if request["JobType"] == "TFJob":
        cluster = {
            spec["Type"].lower(): [f"{id}-{spec['Type'].lower()}-{n}.svc:2222" for n in range(spec["PodCount"])]
            for spec in request["JobSpecs"]
        }
        task = {"type": type_.lower(), "index": index}
        return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": task, "environment": "cloud"})}
    return {
        "MASTER_ADDR": f"{id}-master-0", "MASTER_PORT": "23456", "WORLD_SIZE": str(count), "RANK": str(number),
    }  # fmt: skip


def _is_alive(pid: int, started_s: float) -> bool:
    try:
        process = psutil.Process(pid)
        return process.create_time() == started_s and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _processes_of(id: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(MARK) == id:
                found.append(process)
    return found
