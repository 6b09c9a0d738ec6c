"""Jobs that could not be ended with their experiment: recorded, reported, and ended when their service is back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import httpx
import pytest

from nni_manager.domain.attempt import Observation
from nni_manager.domain.errors import PlatformUnavailable
from nni_manager.domain.experiment import Hold, HoldCode
from nni_manager.domain.job import JobState
from nni_manager.platform_kit import registry
from nni_manager.platform_kit.connections import Connection, Connections
from nni_manager.scheduler.experiments import half_deleted, leftovers
from nni_manager.scheduler.planning import open_trial
from nni_manager.store.experiment import leftover_jobs
from nni_manager.store.folder import Folder
from nni_manager.store.index import index
from tests.api.services import EXPERIMENTS, Acted, act, add_trial, create, shown
from tests.api.world import World

pytestmark = [pytest.mark.unit, pytest.mark.timeout(60)]


class Cleaned(Acted):
    #: (experiment, service, job names) of each call.
    cleaned: ClassVar[list[tuple[str, str, tuple[str, ...]]]] = []
    #: `Host.storage_key` of each call.
    keys: ClassVar[list[str]] = []

    @classmethod
    def connection_key(cls, config: Any) -> str:
        return "http://there"

    async def clean(self, job_names: Sequence[str]) -> None:
        self._may_raise()
        self.cleaned.append((self.host.experiment_id, self.host.service, tuple(job_names)))
        self.keys.append(self.host.storage_key)
        for name in job_names:
            self.jobs.pop(name, None)


@pytest.fixture(autouse=True)
def cleaned(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    act(monkeypatch)
    monkeypatch.setattr(registry, "adapter_of", lambda _platform: Cleaned)
    monkeypatch.setattr(Cleaned, "cleaned", [])
    monkeypatch.setattr(Cleaned, "keys", [])
    monkeypatch.setattr(open_trial, "_STOP_AWAY_MS", 300)


async def stopped_while_away(api: httpx.AsyncClient, world: World) -> tuple[str, str]:
    """(experiment, job): the job runs on a service that cannot be reached any more."""
    id_ = await create(api, world)
    trial_id = await add_trial(api, id_)
    found = await shown(api, f"{id_}/trials/{trial_id}", lambda one: one["status"] == "RUNNING")
    Acted.trouble["local"] = PlatformUnavailable("no route to host")
    Acted.made["local"].host.wake("")
    await shown(api, id_, lambda one: one["services"][0]["status"] == "away")
    begun_s = time.monotonic()
    assert (await api.post(f"{EXPERIMENTS}/{id_}/stop")).json()["status"] == "STOPPED"
    assert time.monotonic() - begun_s < 5
    return id_, found["attempts"][0]["jobName"]


async def noted(world: World) -> list[tuple[str, str, tuple[str, ...]]]:
    rows = await world.supervisor.index.read(leftover_jobs.load)
    return [(row.experiment_id, row.service, row.job_names) for row in rows]


async def test_stop_names_trials_that_may_still_run(api: httpx.AsyncClient, world: World) -> None:
    id_, job = await stopped_while_away(api, world)
    (warning,) = (await api.get(f"{EXPERIMENTS}/{id_}")).json()["warnings"]
    assert warning["code"] == "MAY_STILL_RUN"
    assert "1 job may still run on local: no route to host" in warning["message"]
    assert await noted(world) == [(id_, "local", (job,))]


async def test_leftovers_end_when_the_service_is_reached_again(api: httpx.AsyncClient, world: World) -> None:
    id_, job = await stopped_while_away(api, world)
    Acted.trouble.clear()
    other = await create(api, world)
    await shown(api, id_, lambda one: not one["warnings"])
    assert Cleaned.cleaned == [(id_, "local", (job,))] and other != id_
    assert await noted(world) == []


async def test_clean_ends_leftovers(api: httpx.AsyncClient, world: World) -> None:
    id_, job = await stopped_while_away(api, world)
    (away,) = (await api.post("/api/v1/platforms/clean")).json()["cleaned"]
    assert away == {
        "experiment": id_,
        "service": "local",
        "platform": "local",
        "jobs": 1,
        "trouble": "no route to host",
    }
    assert (await api.post("/api/v1/platforms/clean", json={"platforms": ["remote"]})).json() == {"cleaned": []}
    Acted.trouble.clear()
    (done,) = (await api.post("/api/v1/platforms/clean", json={"platforms": ["local"]})).json()["cleaned"]
    assert done["trouble"] == "" and Cleaned.cleaned == [(id_, "local", (job,))]
    assert await noted(world) == []


async def test_resume_ends_leftovers_before_submitting(api: httpx.AsyncClient, world: World) -> None:
    id_, job = await stopped_while_away(api, world)
    Acted.trouble.clear()
    seen: list[bool] = []
    submit = Cleaned.submit

    async def watched(self: Cleaned, spec: object) -> object:
        seen.append(bool(Cleaned.cleaned))
        return await submit(self, spec)  # type: ignore[arg-type]

    Cleaned.submit = watched  # type: ignore[method-assign,assignment]
    try:
        assert (await api.post(f"{EXPERIMENTS}/{id_}/resume")).status_code == 200
        await shown(api, id_, lambda one: one["counts"] == {"RUNNING": 1})
    finally:
        Cleaned.submit = submit  # type: ignore[method-assign]
    assert Cleaned.cleaned == [(id_, "local", (job,))] and seen == [True]
    async with asyncio.timeout(5):
        while await noted(world):  # noqa: ASYNC110 (any condition)
            await asyncio.sleep(0.01)


async def test_leftovers_of_a_deleted_experiment_are_ended_later(api: httpx.AsyncClient, world: World) -> None:
    id_, job = await stopped_while_away(api, world)
    key = Acted.made["local"].host.storage_key
    assert len(key) == 24
    assert (await api.delete(f"{EXPERIMENTS}/{id_}")).status_code == 204
    assert await noted(world) == [(id_, "local", (job,))]
    Acted.trouble.clear()
    (done,) = (await api.post("/api/v1/platforms/clean")).json()["cleaned"]
    assert (done["experiment"], done["trouble"]) == (id_, "")
    assert Cleaned.keys == [key], "its folders on storage are found though nothing else of it is left"


async def test_delete_ends_reachable_leftovers(api: httpx.AsyncClient, world: World) -> None:
    id_, job = await stopped_while_away(api, world)
    Acted.trouble.clear()
    assert (await api.delete(f"{EXPERIMENTS}/{id_}")).status_code == 204
    assert Cleaned.cleaned == [(id_, "local", (job,))] and await noted(world) == []


async def test_an_ordinary_stop_leaves_nothing(api: httpx.AsyncClient, world: World) -> None:
    id_ = await create(api, world)
    trial_id = await add_trial(api, id_)
    await shown(api, f"{id_}/trials/{trial_id}", lambda one: one["status"] == "RUNNING")
    await api.post(f"{EXPERIMENTS}/{id_}/stop")
    assert await noted(world) == [] and Cleaned.cleaned == []


async def test_experiment_with_corrupt_database_is_cleaned_by_id(api: httpx.AsyncClient, world: World) -> None:
    folder = await world.add("broken")
    folder.database.write_bytes(b"this is not a database")
    assert (await api.delete(f"{EXPERIMENTS}/broken")).status_code == 204
    assert Cleaned.cleaned == [("broken", "local", ())] and await noted(world) == []


async def test_experiment_without_a_known_service_is_deleted(api: httpx.AsyncClient, world: World) -> None:
    folder = await world.add("broken")
    await world.supervisor.index.write(lambda c: index.set_config(c, "broken", None, ""))
    folder.database.write_bytes(b"this is not a database")
    deleted = await api.delete(f"{EXPERIMENTS}/broken")
    assert (deleted.status_code, deleted.text) == (204, "")
    assert Cleaned.cleaned == [] and await noted(world) == []


@pytest.mark.parametrize("was_tried", [True, False])
async def test_experiment_with_invalid_database_is_cleaned_by_id(
    api: httpx.AsyncClient, world: World, was_tried: bool
) -> None:
    folder = await world.add("broken")
    if was_tried:
        world.supervisor.not_opened["broken"] = Hold(code=HoldCode.STORE_UNAVAILABLE, sentence="it is not a file")
    folder.database.unlink()
    folder.database.mkdir()
    deleted = await api.delete(f"{EXPERIMENTS}/broken")
    assert (deleted.status_code, deleted.text) == (204, "")
    assert Cleaned.cleaned == [("broken", "local", ())] and await noted(world) == []


async def test_leftovers_are_checked_until_they_end(
    api: httpx.AsyncClient, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leftovers, "_LOOK_WAITS_S", (0.3,))
    id_, job = await stopped_while_away(api, world)
    trial_id = (await api.get(f"{EXPERIMENTS}/{id_}/trials")).json()["trials"][0]["id"]
    assert (await api.get(f"{EXPERIMENTS}/{id_}/trials/{trial_id}")).json()["message"].startswith("may still run on")
    Acted.trouble.clear()
    await shown(api, id_, lambda one: not one["warnings"])
    assert Cleaned.cleaned == [(id_, "local", (job,))] and await noted(world) == []
    found = (await api.get(f"{EXPERIMENTS}/{id_}/trials/{trial_id}")).json()
    assert found["message"] == "its job was ended later, when the service could be reached again"


async def test_leftovers_end_when_a_connection_in_use_is_back(api: httpx.AsyncClient, world: World) -> None:
    id_, job = await stopped_while_away(api, world)
    Acted.trouble.clear()
    connections = world.supervisor.shared.connections
    async with connections.lease("http://there", "other", lambda: Connection("http://there")) as lease:
        lease.connection.note_up()
        await asyncio.sleep(0)
        assert Cleaned.cleaned == [], "it was not away"
        lease.connection.note_down("no route to host")
        lease.connection.note_up()
        await shown(api, id_, lambda one: not one["warnings"])
    assert Cleaned.cleaned == [(id_, "local", (job,))] and await noted(world) == []


async def test_leftovers_of_deleted_experiment_keep_daemon_a_day(world: World) -> None:
    later = leftovers.Leftovers(world.supervisor.index, Connections(), world.data)
    day_ms = 24 * 3600 * 1000
    assert not later.may_run(1)
    await later.note(_left("gone"))
    assert later.may_run(day_ms) and not later.may_run(day_ms + 1)
    await later.note(replace(_left("gone"), may_run=0))
    assert not later.may_run(2)


async def test_rest_of_deleted_experiment_is_removed_at_run_time(
    api: httpx.AsyncClient, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = await undeletable(api, world, monkeypatch)
    await gone(folder)
    async with asyncio.timeout(10):
        while await world.supervisor.index.read(index.leftovers):  # noqa: ASYNC110 (any condition)
            await asyncio.sleep(0.01)


async def test_experiment_restored_after_its_deletion_stays(
    api: httpx.AsyncClient, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = await undeletable(api, world, monkeypatch)
    folder.database.parent.mkdir(exist_ok=True)
    folder.database.rename(folder.path / "before") if folder.database.exists() else None
    folder.database.write_text("restored")
    async with asyncio.timeout(10):
        while await world.supervisor.index.read(index.leftovers):  # noqa: ASYNC110 (any condition)
            await asyncio.sleep(0.01)
    assert folder.database.read_text() == "restored"


async def undeletable(api: httpx.AsyncClient, world: World, monkeypatch: pytest.MonkeyPatch) -> Folder:
    """The folder of a deleted experiment whose first removal leaves everything."""
    monkeypatch.setattr(half_deleted, "_WAITS_S", (0.5,))  # time to restore it
    folder = await world.add("mine")
    removed = Folder.remove
    left = [["a busy file stays"]]
    monkeypatch.setattr(Folder, "remove", lambda self: left.pop() if left else removed(self))
    assert (await api.delete(f"{EXPERIMENTS}/mine")).status_code == 204
    assert [id_ for id_, _ in await world.supervisor.index.read(index.leftovers)] == ["mine"]
    return folder


async def gone(folder: Folder) -> None:
    async with asyncio.timeout(10):
        while await asyncio.to_thread(folder.path.exists):  # noqa: ASYNC110 (any condition)
            await asyncio.sleep(0.01)


def _left(experiment_id: str) -> leftover_jobs.LeftoverJobs:
    return leftover_jobs.LeftoverJobs(
        experiment_id=experiment_id,
        service="local",
        platform="local",
        connection="http://there",
        section={"platform": "local"},
        secrets={},
        job_names=("job",),
        sentence="away",
        noted_ms=1,
    )


async def test_leftover_ended_during_a_check_does_not_end_the_checks(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leftovers, "_LOOK_WAITS_S", (0.05,))
    later = leftovers.Leftovers(world.supervisor.index, Connections(), world.data)
    for name in ("one", "two"):
        await later.note(_left(name))

    def at_work() -> tuple[str, ...]:
        later._known.pop(("two", "local"), None)  # as after `clean`
        return ("one",) if Cleaned.trouble.pop("once", None) else ()

    later.at_work = at_work
    Cleaned.trouble["once"] = PlatformUnavailable("one is at work at the first look")
    await later.load()
    try:
        async with asyncio.timeout(20):
            while later.services_of("one"):  # noqa: ASYNC110 (any condition)
                await asyncio.sleep(0.01)
    finally:
        await later.close()
    assert ("one", "local", ("job",)) in Cleaned.cleaned


async def test_leftovers_of_an_earlier_daemon_are_checked(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leftovers, "_LOOK_WAITS_S", (0.05,))
    left = _left("gone")
    await world.supervisor.index.write(lambda c: leftover_jobs.put(c, left))
    later = leftovers.Leftovers(world.supervisor.index, Connections(), world.data)
    await later.load()
    try:
        async with asyncio.timeout(20):
            while await noted(world):  # noqa: ASYNC110 (any condition)
                await asyncio.sleep(0.01)
    finally:
        await later.close()
    assert Cleaned.cleaned == [("gone", "local", ("job",))]


async def test_only_jobs_that_may_run_are_counted(api: httpx.AsyncClient, world: World) -> None:
    """One of two jobs had ended, and its service could not be told to forget it."""
    id_ = await create(api, world, trialConcurrency=2)
    first, second = await add_trial(api, id_), await add_trial(api, id_)
    jobs = []
    for trial_id in (first, second):
        found = await shown(api, f"{id_}/trials/{trial_id}", lambda one: one["status"] == "RUNNING")
        jobs.append(found["attempts"][0]["jobName"])
    monkey = Cleaned.forget

    async def refuse(self: Cleaned, handles: object) -> None:
        raise PlatformUnavailable("no route to host")

    Cleaned.forget = refuse  # type: ignore[method-assign,assignment]
    try:
        Acted.made["local"].tell(jobs[0], Observation(state=JobState.SUCCEEDED, exit_code=0))
        await shown(api, f"{id_}/trials/{first}", lambda one: one["status"] == "SUCCEEDED")
        Acted.trouble["local"] = PlatformUnavailable("no route to host")
        Acted.made["local"].host.wake("")
        await shown(api, id_, lambda one: one["services"][0]["status"] == "away")
        await api.post(f"{EXPERIMENTS}/{id_}/stop")
        await shown(api, id_, lambda one: one["warnings"])
        async with asyncio.timeout(10):
            while sorted((await noted(world))[0][2]) != sorted(jobs):  # noqa: ASYNC110 (any condition)
                await asyncio.sleep(0.01)
    finally:
        Cleaned.forget = monkey  # type: ignore[method-assign]
    (warning,) = (await api.get(f"{EXPERIMENTS}/{id_}")).json()["warnings"]
    assert warning["message"].startswith("1 job may still run on local")
    Acted.trouble.clear()
    (done,) = (await api.post("/api/v1/platforms/clean")).json()["cleaned"]
    assert done["jobs"] == 1


async def test_clean_does_not_reuse_an_earlier_check(
    api: httpx.AsyncClient, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stopped_while_away(api, world)
    begun, go_on = asyncio.Event(), asyncio.Event()
    clean = Cleaned.clean

    async def slow(self: Cleaned, job_names: Sequence[str]) -> None:
        begun.set()
        await go_on.wait()
        raise PlatformUnavailable("no route to host")

    monkeypatch.setattr(Cleaned, "clean", slow)
    early = asyncio.create_task(world.commands.clean(()))
    await begun.wait()
    Acted.trouble.clear()
    asked = asyncio.create_task(api.post("/api/v1/platforms/clean"))
    await asyncio.sleep(0)
    monkeypatch.setattr(Cleaned, "clean", clean)
    asyncio.get_running_loop().call_later(0.1, go_on.set)
    (done,) = (await asked).json()["cleaned"]
    assert done["trouble"] == ""
    assert [trouble for _, trouble in await early] == ["no route to host"]
