"""The checkpoint that an attempt finds on its machine: the newest that there is, wherever it was left."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from nni_manager.domain.errors import PlatformUnavailable
from nni_manager.domain.ids import job_name
from nni_manager.domain.job import JobHandle, JobSpec
from nni_manager.machines.ssh.address import Address
from nni_manager.platforms.remote import checkpoints
from nni_manager.platforms.remote.checkpoints import CheckpointMoves
from nni_manager.platforms.remote.platform import RemotePlatform
from nni_manager.platforms.remote.starting import handle_of
from tests.platforms.remote.remote_world import RemoteWorld
from tests.platforms.remote.ssh_machines import InProcessMachine
from tests.waiting import until_async

pytestmark = pytest.mark.contract


class Machines:
    """Machines 0 and 1 of one experiment, between which checkpoints go."""

    def __init__(self, world: RemoteWorld, platform: RemotePlatform) -> None:
        self.world, self.platform = world, platform
        self.moves = CheckpointMoves(platform._machines, platform._locations)

    def _key(self, machine: int) -> str:
        return Address.of(self.world.machines[machine].entry()).key

    def folder(self, machine: int, trial_id: str) -> Path:
        experiment = f"{self.world.recorder.experiment_id}.service"
        return self.world.folder(self.world.machines[machine]) / experiment / "trials" / f"{trial_id}-checkpoint"

    def attempted(self, trial_id: str, attempt: int, machine: int, content: str | None) -> None:
        """An attempt was on a machine, and left a checkpoint; empty: it left an empty folder, None: none."""
        name = job_name(self.world.recorder.experiment_id, trial_id, attempt)
        self.platform._locations.know(name, self._key(machine))
        folder = self.folder(machine, trial_id)
        if content is not None:
            folder.mkdir(parents=True, exist_ok=True)
        if content:
            (folder / "model").write_text(content)

    def spec(self, trial_id: str, attempt: int, continues: str = "") -> JobSpec:
        name = job_name(self.world.recorder.experiment_id, trial_id, attempt)
        spec = replace(self.world.command(trial_id, "train"), name=name, attempt=attempt)
        return replace(spec, continues=continues)

    async def bring(self, spec: JobSpec, machine: int) -> str:
        """The words about what was not brought."""
        site = self.platform._machines.get(self._key(machine))
        assert site is not None
        return (await self.moves.bring(spec, site)).command.removesuffix("train")

    def found(self, machine: int, trial_id: str) -> str:
        file = self.folder(machine, trial_id) / "model"
        return file.read_text() if file.exists() else ""


@pytest_asyncio.fixture
async def machines(tmp_path: Path) -> AsyncIterator[Machines]:
    places = [InProcessMachine(tmp_path / name) for name in ("one", "two")]
    async with RemoteWorld(tmp_path / "world", *places) as world:
        async with world._make(world.config(world.machines), world.recorder) as platform:
            yield Machines(world, platform)


async def test_newest_one_takes_the_place_of_an_older_one(machines: Machines) -> None:
    machines.attempted("aaaaa", 1, 1, "older")
    machines.attempted("aaaaa", 2, 0, "newer")
    assert await machines.bring(machines.spec("aaaaa", 3), 1) == ""
    assert machines.found(1, "aaaaa") == "newer"


async def test_empty_attempt_does_not_replace_checkpoint(machines: Machines) -> None:
    machines.attempted("aaaaa", 1, 0, "good")
    machines.attempted("aaaaa", 2, 1, "")
    assert await machines.bring(machines.spec("aaaaa", 3), 0) == ""
    assert machines.found(0, "aaaaa") == "good"


@pytest.mark.parametrize("left", [None, ""])
async def test_empty_attempt_does_not_hide_earlier_checkpoint(machines: Machines, left: str | None) -> None:
    machines.attempted("aaaaa", 1, 0, "good")
    machines.attempted("aaaaa", 2, 1, left)
    assert await machines.bring(machines.spec("aaaaa", 3), 1) == ""
    assert machines.found(1, "aaaaa") == "good"


@pytest.mark.parametrize("is_half_copied", [False, True])
async def test_attempt_without_copy_does_not_hide_continued_trial(machines: Machines, is_half_copied: bool) -> None:
    machines.attempted("eeeee", 1, 0, "earlier")
    machines.attempted("aaaaa", 1, 0, "half" if is_half_copied else "")
    if is_half_copied:
        (machines.folder(0, "aaaaa") / ".nni-copying").touch()
    assert await machines.bring(machines.spec("aaaaa", 2, continues="eeeee"), 1) == ""
    assert machines.found(1, "aaaaa") == "earlier"


async def test_concurrent_continuations_get_complete_copies(machines: Machines) -> None:
    """What is there of the earlier trial stays as it is: a job may be copying it."""
    machines.attempted("eeeee", 1, 0, "earlier")
    weights = os.urandom(3_000_000)
    (machines.folder(0, "eeeee") / "weights").write_bytes(weights)
    there = machines.folder(1, "eeeee")
    there.mkdir(parents=True)
    (there / "model").write_text("another")
    specs = [machines.spec(trial_id, 1, continues="eeeee") for trial_id in ("aaaaa", "bbbbb", "ccccc")]
    assert await asyncio.gather(*(machines.bring(spec, 1) for spec in specs)) == [""] * 3
    for trial_id in ("aaaaa", "bbbbb", "ccccc"):
        assert machines.found(1, trial_id) == "earlier"
        assert (machines.folder(1, trial_id) / "weights").read_bytes() == weights
    assert machines.found(1, "eeeee") == "another"
    assert sorted(path.name for path in there.parent.iterdir()) == [f"{one * 5}-checkpoint" for one in "abce"]


async def test_checkpoint_of_a_connecting_machine_is_awaited(machines: Machines) -> None:
    """As after a restart of the daemon, or a change of the machine list."""
    machines.attempted("aaaaa", 1, 0, "good")
    sites = machines.platform._machines
    before = tuple(sites)
    await sites.stop()
    sites._all = {site.entry.address.key: sites._make(site.entry) for site in before}
    for site in sites:
        site.start()
    there = sites.get(machines._key(1))
    assert there is not None
    await there.first.wait()
    assert await machines.bring(machines.spec("aaaaa", 2), 1) == ""
    assert machines.found(1, "aaaaa") == "good"


async def test_checkpoint_of_a_reconnecting_machine_is_awaited(machines: Machines) -> None:
    machines.attempted("aaaaa", 1, 0, "good")
    await machines.world.machines[0].stop()
    site = machines.platform._machines.get(machines._key(0))
    assert site is not None
    await until_async(lambda: not site.is_up)
    bringing = asyncio.create_task(machines.bring(machines.spec("aaaaa", 2), 1))
    await machines.world.machines[0].start()
    assert await bringing == ""
    assert machines.found(1, "aaaaa") == "good"


async def test_unreachable_newer_checkpoint_warns_and_older_is_used(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "_LOGIN_S", 0.1)
    machines.attempted("aaaaa", 1, 1, "older")
    machines.attempted("aaaaa", 2, 0, "newer")
    await machines.world.machines[0].stop()
    words = await machines.bring(machines.spec("aaaaa", 3), 1)
    assert words.count("the checkpoint was not brought here from another machine: ") == 1
    assert machines.found(1, "aaaaa") == "older"


async def test_one_that_cannot_be_removed_keeps_no_other(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    handles: list[JobHandle] = []
    for machine, trial_id in ((0, "aaaaa"), (0, "bbbbb"), (1, "ccccc")):
        machines.attempted(trial_id, 1, machine, "needless")
        machines.folder(machine, trial_id).with_name(f"{trial_id}-checkpoint.arriving").mkdir()
        name = job_name(machines.world.recorder.experiment_id, trial_id, 1)
        handles.append(handle_of(name, machines._key(machine), ""))
    site = machines.platform._machines.get(machines._key(0))
    assert site is not None
    remove = site.machine.remove

    async def try_to_remove(folder: str) -> None:
        if "aaaaa" in folder:
            raise PlatformUnavailable("a file in it is immutable")
        await remove(folder)

    monkeypatch.setattr(site.machine, "remove", try_to_remove)
    assert await machines.platform.remove_checkpoints(handles) == {handles[0]: "a file in it is immutable"}
    assert machines.found(0, "aaaaa") == "needless"
    for machine, trial_id in ((0, "bbbbb"), (1, "ccccc")):
        assert not list(machines.folder(machine, trial_id).parent.glob(f"{trial_id}-*"))
    await machines.world.machines[1].stop()
    (handle, why), *others = (await machines.platform.remove_checkpoints(handles[1:])).items()
    assert (handle, others) == (handles[2], []) and "127.0.0.1" in why
