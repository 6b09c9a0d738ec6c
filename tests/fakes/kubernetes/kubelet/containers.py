"""Start of a pod's container: command, environment and folders."""

from __future__ import annotations

import shutil
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from tests.fakes import sandbox
from tests.fakes.kubernetes.kubelet import environment, names, roots
from tests.fakes.kubernetes.kubelet.images import OWN, entry_point
from tests.fakes.kubernetes.kubelet.paths import Paths
from tests.fakes.kubernetes.kubelet.processes import Command, Pretended, Process, Running
from tests.fakes.kubernetes.kubelet.statuses import ContainerStatus
from tests.fakes.kubernetes.kubelet.volumes import VOLUME_OF_FILES
from tests.fakes.kubernetes.store import Object
from tests.fakes.own_root import Step

if TYPE_CHECKING:
    from tests.fakes.kubernetes.cluster import Cluster

_MOST_LAST_WORDS = 4096


class Containers:
    """The containers of one pod, with its volumes mounted."""

    def __init__(self, cluster: Cluster, folder: Path, volumes: dict[str, Path], ip: str) -> None:
        self._cluster, self._folder, self._volumes, self._ip = cluster, folder, volumes, ip
        self._rewritten: set[str] = set()

    def found(self, spec: Object, status: ContainerStatus) -> Running | None:
        """A container that has been running since before the server's restart."""
        return Process.found(self._run_folder(status)) if status.running else None

    def start(self, pod: Object, spec: Object, status: ContainerStatus) -> Running:
        own = self._own_folder(spec["name"])
        log_path = log_file(self._folder, spec["name"], status.restarts)
        pretence = self._cluster.pretences.of(pod)
        if pretence is not None and not pretence.forked:
            log_path.write_text(pretence.log)
            return Pretended(self._cluster.number(), pretence.seconds, pretence.exit_code)
        (own / "termination-log").write_bytes(b"")
        argv = [*(spec.get("command") or entry_point(spec["image"])), *(spec.get("args") or [])]
        command = self.command(pod, spec, argv, log_path)
        if pretence is not None:
            return self._cluster.forks.start(self._cluster.number(), command)
        return Process.start(self._run_folder(status), command)

    def command(self, pod: Object, spec: Object, argv: list[str], log_path: Path) -> Command:
        """`argv` resolved for the container."""
        own, paths = self._own_folder(spec["name"]), self._paths(spec)
        variables = self._environment(pod, spec, paths)
        argv = [paths.of(environment.expanded(word, variables)) for word in argv]
        if not argv:
            raise FileNotFoundError("failed to create containerd task: no command specified")
        working = Path(paths.of(spec["workingDir"])) if spec.get("workingDir") else own / "root"
        if "/" not in argv[0] and shutil.which(argv[0], path=variables["PATH"]) is None:
            told = f'exec: "{argv[0]}": executable file not found in $PATH: unknown'
            raise FileNotFoundError(f"failed to create containerd task: OCI runtime create failed: {told}")
        rooted = roots.within(self._root(), argv, str(working), own / "mounts")
        return Command(rooted, variables, own / "root", log_path)

    def _root(self) -> list[Step]:
        """The image, the pod's folder and volumes, the fake's commands, and folders shared by tests."""
        folder = self._cluster.settings.folder
        shown = [self._folder, *self._volumes.values(), *self._cluster.shared]
        commands = [("read", str(one), str(one)) for one in (names.commands(folder), names.hosts(folder))]
        return [*self._image, *OWN, *commands, *(("bind", str(one), str(one)) for one in shown)]

    @cached_property
    def _image(self) -> list[Step]:
        return sandbox.image(self._folder)

    def last_words(self, spec: Object, status: ContainerStatus, exit_code: int) -> str:
        """The termination message."""
        path = self._own_folder(spec["name"]) / "termination-log"
        text = path.read_bytes()[:_MOST_LAST_WORDS] if path.exists() else b""
        if not text and exit_code and spec.get("terminationMessagePolicy") == "FallbackToLogsOnError":
            written = log_file(self._folder, spec["name"], status.restarts)
            text = written.read_bytes()[-2048:] if written.exists() else b""
        return text.decode(errors="replace")

    def _environment(self, pod: Object, spec: Object, paths: Paths) -> dict[str, str]:
        own = self._own_folder(spec["name"])
        declared = environment.declared(self._cluster.verbs, _with_ip(pod, self._ip), spec)
        scheme, _, address = self._cluster.address.partition("://")
        host, _, port = address.partition(":")
        given = {
            "PATH": f"{names.commands(self._cluster.settings.folder)}:{self._cluster.settings.path}",
            "HOSTNAME": pod["spec"].get("hostname") or pod["metadata"]["name"],
            "HOME": str(own / "root"),
            "TMPDIR": str(own / "tmp"),
            **sandbox.variables(),
            "KUBERNETES_SERVICE_HOST": host,
            "KUBERNETES_SERVICE_PORT": port,
            "KUBERNETES_SERVICE_SCHEME": scheme,
        }
        return given | {name: paths.of(value) for name, value in declared.items()}

    def _paths(self, spec: Object) -> Paths:
        mounts: dict[str, Path] = {}
        for mount in spec.get("volumeMounts") or []:
            folder = self._volumes[mount["name"]]
            if mount.get("subPath"):
                folder = folder / mount["subPath"].strip("/")
                if not folder.exists():
                    folder.mkdir(parents=True)
            if mount["mountPath"].rstrip("/") != "/dev/shm":  # the container's own suffices
                mounts[mount["mountPath"]] = folder
        message = spec.get("terminationMessagePath", "/dev/termination-log")
        mounts[message] = self._own_folder(spec["name"]) / "termination-log"
        found = Paths(mounts)
        self._rewrite(spec, found)
        return found

    def _rewrite(self, spec: Object, paths: Paths) -> None:
        """Rewrite container paths in scripts of config maps and secrets, once."""
        for name in {mount["name"] for mount in spec.get("volumeMounts") or []} - self._rewritten:
            if (self._volumes[name] / VOLUME_OF_FILES).exists():
                self._rewritten.add(name)
                for path in self._volumes[name].rglob("*"):
                    with suppress(UnicodeDecodeError, IsADirectoryError):
                        path.write_text(paths.of(path.read_text()))

    def _own_folder(self, container: str) -> Path:
        folder = self._folder / container
        for name in ("root", "tmp"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        return folder

    def _run_folder(self, status: ContainerStatus) -> Path:
        return self._folder / status.name / f"run{status.restarts}"


def log_file(folder: Path, container: str, restarts: int) -> Path:
    path = folder / container / f"{restarts}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _with_ip(pod: Object, ip: str) -> Object:
    status = {"hostIP": "127.0.0.1", "podIP": ip, **(pod.get("status") or {})}
    return {**pod, "status": status}
