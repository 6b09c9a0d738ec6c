"""Shared storage that the manager mounts, here and on an SSH machine; a real daemon in a mount namespace.

``unshare --mount python -m tests.acceptance.mounted_storage_run FOLDER KIND``, as root; prints ``done`` at the end.
The storage is a local folder: replacements of `mount` and `blobfuse2` bind it to the mount point, and log
their arguments.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.live_daemon import Daemon, end_all, picked, running_daemon
from tests.platforms.remote.ssh_machines import RealMachine
from tests.storage_places import folder_of

KEY = "c2VjcmV0LWtleS1vZi10aGUtYWNjb3VudA=="
_REPORT = """echo "{\\"type\\": \\"final\\", \\"value\\": 1}" >> "$NNI_OUTBOX"; echo out > "$NNI_OUTPUT_DIR/model" """
_STORAGE: dict[str, dict[str, str]] = {
    "NFS": {"storageType": "NFS", "nfsServer": "files.example.test", "exportedDirectory": "/data"},
    "AzureBlob": {
        "storageType": "AzureBlob",
        "storageAccountName": "shop",
        "storageAccountKey": KEY,
        "containerName": "models",
    },
}
_MOUNT = """\
#!/bin/sh
echo mount "$@" >> {folder}/calls
[ "$1 $2 $3 $4 $5" = "-t nfs -o retry=0 files.example.test:/data" ] || exit 32
exec {mount} --bind {folder}/storage "$6"
"""
_BLOBFUSE = """\
#!/bin/sh
echo blobfuse2 "$@" >> {folder}/calls
case $1 in
mount) grep -q '"account-key": "{key}"' "${{3#--config-file=}}" || exit 1; exec {mount} --bind {folder}/storage "$2";;
unmount) exec umount "$2";;
esac
"""


class Setup:
    """`point`: mount point on this machine; the other machine mounts below its home folder."""

    def __init__(self, folder: Path, kind: str, daemon: Daemon, machine: RealMachine) -> None:
        self.folder, self.kind, self.daemon, self.machine = folder, kind, daemon, machine
        self.point, self.storage = folder / "mnt", folder / "storage"

    def refused(self, **fields: str) -> str:
        try:
            self.create(1, **fields)
        except AssertionError as refused:
            return str(refused)
        raise AssertionError("what is mounted there is not the storage")

    def create(self, trials: int, command: str = _REPORT, **fields: str) -> str:
        both = self.folder / f"both-{trials}"  # if there are several trials, those here wait until one runs there
        if trials == 1:
            both.touch()
        here = {
            "platform": "local",
            "trialConcurrency": 1,
            "trialCommand": f"while [ ! -e {both} ]; do sleep 0.05; done; {command}",
        }
        there = {"platform": "remote", "trialCommand": f"touch {both}; {command}"}
        sections = [here, {**there, "machineList": [self.machine.entry()]}]
        mounted = {"localMountPoint": str(self.point), "remoteMountPoint": "nni/mnt", "localMounted": "nnimount"}
        config = {
            "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
            "trialCommand": command,
            "trialCodeDirectory": ".",
            "trialConcurrency": 2,
            "maxTrialNumber": trials,
            "tuner": {"name": "Random", "classArgs": {"optimize_mode": "maximize"}},
            "trainingService": sections,
            "sharedStorage": {**_STORAGE[self.kind], **mounted, **fields},
        }
        return self.daemon.create(config, self.folder / "code")

    def stop(self, id: str) -> None:
        self.daemon.call("POST", f"/experiments/{id}/stop")

    @property
    def mounted(self) -> list[str]:
        points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        return sorted(point for point in points if point.startswith(str(self.folder)))

    @property
    def both(self) -> list[str]:
        return sorted([str(self.machine.home / "nni" / "mnt"), str(self.point)])

    def records(self) -> list[Path]:
        homes = (self.machine.home, Path(self.daemon.environment["HOME"]))
        return [path for home in homes for path in home.glob(".nni-manager/mounts/*/*/*/*")]


def mounted_for_its_trials(setup: Setup) -> None:
    """The storage stays mounted until the stop, and a daemon that did not mount it unmounts it."""
    id = setup.create(8, f"sleep 0.5; {_REPORT}")
    setup.daemon.wait_for(id, lambda state: state["counts"].get("SUCCEEDED", 0) >= 2)
    assert setup.mounted == setup.both
    setup.daemon.kill()
    assert setup.mounted == setup.both, "trials run on"
    setup.daemon.start()
    setup.daemon.wait(id, "DONE", timeout_s=60)
    assert set(picked(setup.daemon.attempts(id), "service")) == {("local",), ("remote",)}
    assert len(list(folder_of(setup.storage / "nni", id).glob("trials/*/nnioutput/model"))) == 8
    setup.stop(id)
    assert not setup.mounted and not setup.records()


def shared_by_two(setup: Setup) -> None:
    one = setup.create(2)
    setup.daemon.wait(one, "DONE", timeout_s=60)
    two = setup.create(2)
    setup.daemon.wait(two, "DONE", timeout_s=60)
    setup.stop(one)
    assert str(setup.point) in setup.mounted, "the other one has it yet"
    setup.stop(two)
    assert not setup.mounted and not setup.records()


def another_one_at_the_same_place(setup: Setup) -> None:
    """A second experiment with other storage at the same mount point is refused."""
    one = setup.create(1)
    setup.daemon.wait(one, "DONE", timeout_s=60)
    other = {"nfsServer": "elsewhere.example.test"} if setup.kind == "NFS" else {"containerName": "elsewhere"}
    words = setup.refused(**other)
    assert "sharedStorage.localMountPoint" in words and "elsewhere" in words, words
    setup.stop(one)
    assert not setup.mounted


def left_as_it_was_found(setup: Setup) -> None:
    """A foreign mount at the mount point refuses the experiment and stays mounted."""
    setup.point.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "none", setup.point], check=True)
    words = setup.refused()
    assert "sharedStorage.localMountPoint" in words and "tmpfs of none is mounted" in words, words
    assert setup.mounted == [str(setup.point)]
    subprocess.run(["umount", setup.point], check=True)


def key_is_not_in_texts(setup: Setup) -> None:
    calls = (setup.folder / "calls").read_text()
    assert ("mount -t nfs" if setup.kind == "NFS" else "blobfuse2 mount") in calls
    assert KEY not in calls and KEY not in setup.daemon.log()
    # in the file, not only in the API
    for (config,) in setup.daemon.rows(setup.create(1), "SELECT config FROM experiment"):
        assert KEY not in json.dumps(config)


@contextlib.contextmanager
def _prepared(folder: Path, kind: str) -> Iterator[Setup]:
    for name in ("bin", "code", "storage"):
        (folder / name).mkdir()
    texts = {"mount": _MOUNT, "blobfuse2": _BLOBFUSE, "mount.nfs": "#!/bin/sh\nexit 1\n"}
    real = subprocess.run(["sh", "-c", "command -v mount"], capture_output=True, text=True, check=True).stdout.strip()
    for name, text in texts.items():
        (folder / "bin" / name).write_text(text.format(folder=folder, mount=real, key=KEY))
        (folder / "bin" / name).chmod(0o755)
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    machine = RealMachine(folder / "machine")
    machine.environment["PATH"] = path
    asyncio.run(machine.start())
    try:
        with running_daemon(folder, environment={"PATH": path}) as daemon:
            yield Setup(folder, kind, daemon, machine)
    finally:
        asyncio.run(machine.stop())
        end_all(str(machine.home))


def main(folder: Path, kind: str) -> None:
    steps: list[Any] = [
        mounted_for_its_trials,
        shared_by_two,
        another_one_at_the_same_place,
        left_as_it_was_found,
        key_is_not_in_texts,
    ]
    with _prepared(folder, kind) as setup:
        for step in steps:
            step(setup)
    print("done")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
