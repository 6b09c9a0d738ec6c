"""Shared storage that the manager mounts, here and on a machine of SSH, with a real daemon in mounts of its own.

``unshare --mount python -m tests.acceptance.storage_stage FOLDER KIND``, as root; says ``done`` in the end. What is
mounted is a folder of this machine: programs of the names that are called bind it to the mount point, and write down
how they were called.
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

from tests.live_daemon import Daemon, picked, processes_of, running_daemon
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


class Stage:
    """`point`: where this machine mounts it; the other one does below its home folder."""

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
        both = self.folder / f"both-{trials}"  # trials here wait until one is there, where there is more than one
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
            "tuner": {"name": "Random"},
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
        return [path for home in homes for path in home.glob(".nni-manager/mounts/*/*")]


def mounted_for_its_trials(stage: Stage) -> None:
    """Until it is stopped, also by a daemon that did not mount it."""
    id = stage.create(8, f"sleep 0.5; {_REPORT}")
    stage.daemon.wait_for(id, lambda state: state["counts"].get("SUCCEEDED", 0) >= 2)
    assert stage.mounted == stage.both
    stage.daemon.kill()
    assert stage.mounted == stage.both, "trials run on"
    stage.daemon.start()
    stage.daemon.wait(id, "DONE", timeout_s=60)
    assert set(picked(stage.daemon.attempts(id), "service")) == {("local",), ("remote",)}
    assert len(list(folder_of(stage.storage / "nni", id).glob("trials/*/nnioutput/model"))) == 8
    stage.stop(id)
    assert not stage.mounted and not stage.records()


def shared_by_two(stage: Stage) -> None:
    one = stage.create(2)
    stage.daemon.wait(one, "DONE", timeout_s=60)
    two = stage.create(2)
    stage.daemon.wait(two, "DONE", timeout_s=60)
    stage.stop(one)
    assert str(stage.point) in stage.mounted, "the other one has it yet"
    stage.stop(two)
    assert not stage.mounted and not stage.records()


def another_one_at_the_same_place(stage: Stage) -> None:
    """What the manager has mounted for one experiment is not what another one means."""
    one = stage.create(1)
    stage.daemon.wait(one, "DONE", timeout_s=60)
    other = {"nfsServer": "elsewhere.example.test"} if stage.kind == "NFS" else {"containerName": "elsewhere"}
    words = stage.refused(**other)
    assert "sharedStorage.localMountPoint" in words and "elsewhere" in words, words
    stage.stop(one)
    assert not stage.mounted


def left_as_it_was_found(stage: Stage) -> None:
    """Somebody else's mount; and one of something else refuses the experiment."""
    stage.point.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "none", stage.point], check=True)
    words = stage.refused()
    assert "sharedStorage.localMountPoint" in words and "tmpfs of none is mounted" in words, words
    assert stage.mounted == [str(stage.point)]
    subprocess.run(["umount", stage.point], check=True)


def told_nobody(stage: Stage) -> None:
    calls = (stage.folder / "calls").read_text()
    assert ("mount -t nfs" if stage.kind == "NFS" else "blobfuse2 mount") in calls
    assert KEY not in calls and KEY not in stage.daemon.log()
    # in the file, which outlives what the API tells
    for (config,) in stage.daemon.rows(stage.create(1), "SELECT config FROM experiment"):
        assert KEY not in json.dumps(config)


@contextlib.contextmanager
def _prepared(folder: Path, kind: str) -> Iterator[Stage]:
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
            yield Stage(folder, kind, daemon, machine)
    finally:
        asyncio.run(machine.stop())
        for process in processes_of(str(machine.home)):
            process.kill()


def main(folder: Path, kind: str) -> None:
    acts: list[Any] = [
        mounted_for_its_trials,
        shared_by_two,
        another_one_at_the_same_place,
        left_as_it_was_found,
        told_nobody,
    ]
    with _prepared(folder, kind) as stage:
        for act in acts:
            act(stage)
    print("done")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
