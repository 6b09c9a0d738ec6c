"""The jobs of a Hive: processes of this machine, each in a folder that says all that is known of it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

Entry = dict[str, Any]
_START = 'cd "$HIVE_JOB" && {command}; echo $? > exit.draft; mv exit.draft exit'


class Jobs:
    """Level-based: whatever is told is read from the folders, so that it outlives the service."""

    def __init__(self, folder: Path, slots: int) -> None:
        self._folder = folder
        self._slots = slots
        self._lock = threading.RLock()
        #: New jobs are not started by themselves, and why.
        self.held = ""
        #: No more jobs are taken.
        self.is_full = False

    def reset(self) -> None:
        """No job and no file is left."""
        self.held, self.is_full = "", False
        for name in self.of(""):
            self.remove(name)
        shutil.rmtree(self._folder / "files", ignore_errors=True)

    # Files of groups

    def put_file(self, group: str, name: str, data: bytes) -> None:
        folder = self._files(group)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)

    def remove_files(self, group: str) -> None:
        shutil.rmtree(self._files(group), ignore_errors=True)

    # Jobs

    def put(self, name: str, entry: Entry) -> tuple[int, Entry]:
        """(status, what is told); the same name twice is the same job."""
        with self._lock:
            if (known := self._read(name)) is not None:
                return 200, self.told(known)
            if not all((self._files(entry["group"]) / file).exists() for file in entry["command"][1:]):
                return 422, {"error": "the group has no such file"}
            if self.free() == 0:
                return 429, {"error": "no free slot"}
            self._write(name, {**entry, "name": name, "submitted_ms": _now_ms(), "starts": 0})
            if not self.held:
                self.start(name)
            return 201, self.told(self._known(name))

    def start(self, name: str) -> None:
        with self._lock:
            entry, folder = self._known(name), self._job(name)
            for file in self._files(entry["group"]).iterdir():
                shutil.copy(file, folder)
            own = {"PATH": os.environ["PATH"], "HOME": str(folder), "HIVE_JOB": str(folder)}
            told = {key: value.replace("$HIVE_JOB", str(folder)) for key, value in entry["environment"].items()}
            with (folder / "output").open("ab") as output:
                process = subprocess.Popen(
                    ["/bin/sh", "-c", _START.format(command=" ".join(entry["command"]))],
                    env={**own, **told},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
            threading.Thread(target=process.wait, daemon=True).start()
            self._write(name, {**entry, "pid": process.pid, "starts": entry["starts"] + 1, "started_ms": _now_ms()})

    def stop(self, name: str, grace_s: float, by: str) -> None:
        """Quiet for one that has ended."""
        with self._lock:
            entry = self._known(name)
            if "stopped_by" in entry or self.told(entry)["state"] not in ("queued", "running"):
                return
            self._write(name, {**entry, "stopped_by": by, "ended_ms": _now_ms()})
        if "pid" in entry:
            _signal(entry["pid"], signal.SIGTERM)
            threading.Timer(grace_s, _signal, (entry["pid"], signal.SIGKILL)).start()

    def remove(self, name: str) -> None:
        """Ends it, too."""
        with self._lock:
            if (entry := self._read(name)) is None:
                return
            if "pid" in entry:
                _signal(entry["pid"], signal.SIGKILL)
            (self._job(name) / "job.json").unlink()
            shutil.rmtree(self._job(name), ignore_errors=True)

    def of(self, group: str) -> dict[str, Entry]:
        names = os.listdir(self._folder / "jobs") if (self._folder / "jobs").exists() else []
        found = {name: entry for name in names if (entry := self._read(name)) is not None}
        return {name: self.told(entry) for name, entry in found.items() if group in ("", entry["group"])}

    def traces(self, group: str) -> list[str]:
        files = os.listdir(self._files(group)) if self._files(group).exists() else []
        return [*self.of(group), *files]

    def log(self, name: str, file: str) -> bytes | None:
        try:
            return (self._job(name) / "nni" / file).read_bytes()
        except OSError:
            return None

    def free(self) -> int:
        if self.is_full:
            return 0
        return max(0, self._slots - sum(job["state"] in ("queued", "running") for job in self.of("").values()))

    def told(self, entry: Entry) -> Entry:
        code = self._exit_code(entry["name"])
        state, reason = "queued", self.held or "waiting for its turn"
        if "pid" in entry:
            state, reason = "running", ""
        if code is not None:
            state, reason = ("done", "") if code == 0 else ("failed", "")
        if "stopped_by" in entry:
            state, reason = "stopped", f"stopped by {entry['stopped_by']}"
        told = {key: entry[key] for key in ("group", "tag", "starts", "started_ms", "ended_ms") if key in entry}
        exit_code = code if code is None or code < 128 else 128 - code
        return {**told, "state": state, "exit": exit_code, "reason": reason, "machine": "cell 7"}

    def _exit_code(self, name: str) -> int | None:
        try:
            return int((self._job(name) / "exit").read_text())
        except FileNotFoundError:
            return None

    def _known(self, name: str) -> Entry:
        entry = self._read(name)
        if entry is None:
            raise KeyError(name)
        return entry

    def _read(self, name: str) -> Entry | None:
        try:
            found: Entry = json.loads((self._job(name) / "job.json").read_text())
        except OSError:
            return None
        return found

    def _write(self, name: str, entry: Entry) -> None:
        self._job(name).mkdir(parents=True, exist_ok=True)
        draft = self._job(name) / "job.draft"
        draft.write_text(json.dumps(entry))
        draft.replace(self._job(name) / "job.json")

    def _job(self, name: str) -> Path:
        return self._folder / "jobs" / name

    def _files(self, group: str) -> Path:
        return self._folder / "files" / group


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        pass


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
