"""`aml` against a workspace that loses answers, wants to be left alone, forgets jobs, and has jobs of others."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import json
import threading
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from nni_manager.domain.errors import BadCredentials, PlatformUnavailable, SubmitRejected
from nni_manager.domain.job import JobHandle, JobState
from nni_manager.platform_kit.contract import Severity
from nni_manager.platform_kit.testing.observing import seen
from nni_manager.platforms.aml import account, job, mirror
from nni_manager.platforms.aml.assets import Blobs
from nni_manager.platforms.aml.config import AmlConfig
from tests.platforms import web_world
from tests.platforms.aml.aml_world import GOOD, LOSS_APART_S, AmlWorld, GivenTokens

pytestmark = pytest.mark.unit
_END = tuple(state for state in JobState if state.is_final)

insisted = functools.partial(web_world.insisted, pause_s=0.05)


@pytest_asyncio.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[AmlWorld]:
    monkeypatch.setattr(account, "PACES", {"read": (1000.0, 1000), "write": (1000.0, 1000)})
    async with AmlWorld(tmp_path) as world:
        world.pretend()
        world.workspace.faults.hold = False
        yield world


async def test_a_hundred_lost_answers_make_no_second_job(world: AmlWorld) -> None:
    world.workspace.faults.lost_puts = 100
    specs = [world.command(f"t{number:04}", "true") for number in range(100)]
    async with world.make() as platform:
        handles = await asyncio.gather(*(insisted(platform, spec) for spec in specs))
        for entry in world.workspace.jobs.values():
            entry["status"] = "Completed"
        reports: Counter[JobState] = Counter()
        for _ in range(2):
            reports = Counter(report.state for report in (await platform.observe(handles)).values())
    assert set(world.workspace.jobs) == {spec.name for spec in specs}
    assert set(reports) == {JobState.RUNNING}, "an end is told when what it left was looked for"


async def test_shared_assets_are_uploaded_once(world: AmlWorld) -> None:
    async with world.make() as platform:
        await asyncio.gather(*(insisted(platform, world.command(f"t{n:04}", "true")) for n in range(5)))
    async with world.make() as platform:
        await insisted(platform, world.command("later", "true"))
    puts = [path for method, path in world.workspace.calls if method == "PUT" and not path.startswith("jobs/")]
    assert sorted(path.partition("/")[0] for path in puts) == ["codes", "environments"]
    code = next(path for path in puts if path.startswith("codes"))
    assert {entry["properties"]["codeId"] for entry in world.workspace.jobs.values()} == {
        f"{world.workspace.resource}/{code}"
    }


async def test_a_foreign_job_of_the_same_name_is_not_adopted(world: AmlWorld) -> None:
    spec = world.command("aaaaa", "true")
    async with world.make() as platform:
        await insisted(platform, dataclasses.replace(spec, nonce="another1"))
        handle = await insisted(platform, dataclasses.replace(spec, is_repeat=True))
        assert await insisted(platform, dataclasses.replace(spec, is_repeat=True)) == handle
    assert handle.data == f"{spec.name}-{spec.nonce}"
    assert set(world.workspace.jobs) == {spec.name, f"{spec.name}-{spec.nonce}"}


async def test_command_has_no_user_text_and_no_secret(world: AmlWorld) -> None:
    async with world.make(jobTimeout=240) as platform:
        await insisted(platform, world.command("aaaaa", "echo '${{inputs.x}}' \"$HOME\""))
    (entry,) = world.workspace.jobs.values()
    assert entry["properties"]["command"] == f"sh {job.START_FILE} ${{{{outputs.nni}}}}"
    assert "inputs.x" not in json.dumps(entry) and GOOD not in json.dumps(entry)
    assert entry["properties"]["limits"] == {"jobLimitsType": "Command", "timeout": "PT240M"}
    assert entry["properties"]["computeId"].endswith("/computes/gpu-cluster")


async def test_short_pages_and_lists_without_a_job_cost_none(world: AmlWorld) -> None:
    world.workspace.faults.page_limit = 7
    async with world.make() as platform:
        handles = [await insisted(platform, world.command(f"t{number:04}", "true")) for number in range(30)]
        states = Counter(report.state for report in (await platform.observe(handles)).values())
    assert states == {JobState.RUNNING: 30}


async def test_jobs_further_down_than_is_read_are_asked_for_in_turns(
    world: AmlWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(account, "_MOST_PAGES", 2)
    world.workspace.faults.page_limit = 2
    async with world.make() as platform:
        handles = [await insisted(platform, world.command(f"t{number:04}", "true")) for number in range(30)]
        found: set[JobHandle] = set()
        for _ in range(3):
            reports = await platform.observe(handles)
            assert {report.state for report in reports.values()} <= {JobState.RUNNING, JobState.UNKNOWN}
            found |= {handle for handle, report in reports.items() if report.state is JobState.RUNNING}
    assert found == set(handles)


async def test_states_of_removed_cancelled_and_unknown_jobs(world: AmlWorld) -> None:
    async with world.make() as platform:
        gone, cancelled, odd = [await insisted(platform, world.command(n, "true")) for n in ("aaaaa", "bbbbb", "ccccc")]
        await world.vanish(gone)
        world.workspace.stop(cancelled.job_name)
        world.workspace.faults.statuses[odd.job_name] = "Defragmenting"
        assert (await platform.observe([gone]))[gone].state is JobState.UNKNOWN, "once is not enough"
        await asyncio.sleep(2 * LOSS_APART_S)
        reports = await platform.observe([gone, cancelled, odd])
    assert [reports[one].state for one in (gone, cancelled, odd)] == [
        JobState.LOST,
        JobState.CANCELLED,
        JobState.UNKNOWN,
    ]


async def test_429_is_obeyed(world: AmlWorld) -> None:
    async with world.make() as platform:
        handle = await insisted(platform, world.command("aaaaa", "true"))
        world.workspace.faults.throttled = 1
        with pytest.raises(PlatformUnavailable):
            await platform.observe([handle])
        began = asyncio.get_running_loop().time()
        await platform.observe([handle])
    assert asyncio.get_running_loop().time() - began >= 0.9


async def test_refused_token_is_renewed(world: AmlWorld) -> None:
    async with world.make((GOOD, "the-next")) as platform:
        handle = await insisted(platform, world.command("aaaaa", "true"))
        world.server.tokens[:] = ["the-next"]
        assert (await platform.observe([handle]))[handle].state is JobState.RUNNING
        world.server.tokens[:] = ["one-that-nobody-has"]
        with pytest.raises(BadCredentials) as refused:
            await platform.observe([handle])
    assert "the-next" not in str(refused.value)


async def test_a_stop_that_crosses_a_success_leaves_it_one(world: AmlWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    async with world.make() as platform:
        handle = await insisted(platform, world.command("aaaaa", "true"))
        world.workspace.jobs[handle.job_name]["status"] = "Completed"
        await platform.cancel([handle], 5.0)
        monkeypatch.setattr("nni_manager.platforms.aml.platform._READ_PATIENCE_S", 0.1)
        assert (await seen(world, platform, handle, *_END)).state is JobState.SUCCEEDED
        await platform.forget([handle])
    assert world.workspace.jobs[handle.job_name]["status"] == "Completed"


async def test_clean_cancels_leftover_jobs_and_removes_files(world: AmlWorld) -> None:
    async with world.make() as platform:
        handle = await insisted(platform, world.command("aaaaa", "true"))
    assert list(world.directory(handle.job_name).iterdir())
    await world.make().clean([handle.job_name])
    assert world.workspace.jobs[handle.job_name]["status"] == "Canceled"
    assert not list(world.directory(handle.job_name).iterdir())


async def test_clean_while_entered_keeps_running_jobs_and_files(world: AmlWorld) -> None:
    """As after a start of the daemon, for attempts that were given up while the service was away."""
    async with world.make() as platform:
        given_up = await insisted(platform, world.command("aaaaa", "true"))
        runs = await insisted(platform, world.command("bbbbb", "true"))
    async with world.make() as platform:
        await platform.clean([given_up.job_name])
        assert world.workspace.jobs[given_up.job_name]["status"] == "Canceled"
        assert world.workspace.jobs[runs.job_name]["status"] != "Canceled"
        assert list(world.directory(runs.job_name).iterdir())
        await insisted(platform, world.command("ccccc", "true"))


@pytest.mark.parametrize(
    ("fields", "words"),
    [({"computeTarget": "nowhere"}, "computeTarget"), ({"workspaceName": "w9"}, "workspaceName")],
)
async def test_preflight_names_missing_objects(world: AmlWorld, fields: dict[str, str], words: str) -> None:
    findings = await world.make(**fields).preflight()
    assert [one.severity for one in findings] == [Severity.WRONG]
    assert words in findings[0].subject + findings[0].sentence + findings[0].fix


async def test_a_cluster_that_is_gone_refuses_the_job(world: AmlWorld) -> None:
    async with world.make(computeTarget="nowhere") as platform:
        with pytest.raises(SubmitRejected, match="nowhere"):
            await platform.submit(world.command("aaaaa", "true"))


async def test_sovereign_clouds_have_addresses_of_their_own(world: AmlWorld) -> None:
    settings = {**world.settings(), "endpoint": "https://management.usgovcloudapi.net"}
    config = AmlConfig.model_validate(settings)
    assert config.address + config.resource in world.make().connection_key(config)
    assert AmlConfig.model_validate({**settings, "endpoint": None}).address == "https://management.azure.com"


async def test_only_grown_runner_files_are_copied(world: AmlWorld, tmp_path: Path) -> None:
    source = world.workspace.blobs.folder / "p"
    for name, text in {
        "stdout": "one\n",
        "outbox/main.jsonl": "1\n",
        "model.bin": "x" * 10,
        "runner.json": "{}",
    }.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(text)
    world.workspace.blobs.page = 2
    container = f"{world.workspace.address}/azureml-blobstore"
    blobs = Blobs(container, GivenTokens(GOOD))
    try:
        copy = mirror.Mirror(blobs, 100 * 2**20)
        copy.follow("job", "p", tmp_path / "copy")
        assert await copy.sync("job") and not await copy.sync("job")
        (source / "stdout").write_text("one\ntwo\n")
        assert await copy.sync("job")
    finally:
        await blobs.close()
    found = {str(path.relative_to(tmp_path / "copy")) for path in (tmp_path / "copy").rglob("*") if path.is_file()}
    assert found == {"stdout", "outbox/main.jsonl", "runner.json"}
    assert (tmp_path / "copy" / "stdout").read_text() == "one\ntwo\n"


async def test_code_that_another_put_meanwhile_is_used(world: AmlWorld) -> None:
    """The address of an upload is another at every call, and an asset keeps the path that it was put with first."""
    other = world.recorder.other("neighbour")
    async with world.make() as platform, world.built(other) as neighbour:
        world.workspace.meetings["codes"] = threading.Barrier(2, timeout=10)
        await asyncio.gather(
            insisted(platform, world.command("aaaaa", "true")),
            insisted(neighbour, world.command("bbbbb", "true", other)),
        )
    assert len({entry["properties"]["codeId"] for entry in world.workspace.jobs.values()}) == 1
    assert len(world.workspace.jobs) == 2


async def test_identity_only_datastores_are_found_by_preflight(world: AmlWorld) -> None:
    world.workspace.auth_mode = "Identity"
    findings = await world.make().preflight()
    assert any("identity" in one.subject + one.sentence + one.fix for one in findings)


async def test_a_job_has_the_identity_that_was_asked_for(world: AmlWorld) -> None:
    world.workspace.auth_mode = "Identity"
    async with world.make(identity="UserIdentity") as platform:
        await insisted(platform, world.command("aaaaa", "true"))
    (entry,) = world.workspace.jobs.values()
    assert entry["properties"]["identity"] == {"identityType": "UserIdentity"}
