"""A pod whose posts do not arrive any more is read through the API, so that nothing is lost with it; others are not."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from nni_manager.domain.job import JobSpec
from nni_manager.kubernetes.api.names import REPORTS
from nni_manager.kubernetes.exec.channel import ExecChannel
from nni_manager.kubernetes.jobs import draft
from nni_manager.kubernetes.jobs.job_memory import JobMemory
from nni_manager.platform_kit.connections import Connections
from nni_manager.platform_kit.contract import Delivery, Host
from trial_runner import protocol

pytestmark = [pytest.mark.unit, pytest.mark.looptime]

STORED, RESULT = 10, '{"type": "final", "value": 7}'


class World:
    """One pod, which has chosen to post, and the host."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.heard_s = 0.0
        self.asked: list[str] = []
        self.lines: list[str] = []
        self.word: dict[str, Any] = {}
        self.greeted: list[str] = []
        self.has_ended = False
        #: What the next commands that read print instead.
        self.noise: list[bytes] = []
        #: Another pod of this uid takes its place, as where an operator starts it again.
        self.replace: Callable[[str], None] = lambda uid: None

    def host(self) -> Host:
        async def nothing() -> Path:
            raise AssertionError("its code was fetched")

        async def stored(name: str) -> dict[str, int]:
            return {protocol.MAIN_OUTBOX: STORED}

        async def greet(job: str, version: str | None, channel: str, **_: Any) -> None:
            self.greeted.append(channel)

        async def deliver(job: str, outbox: str, start: int, end: int, lines: list[str], **_: Any) -> Delivery:
            self.lines += lines
            return Delivery(resend=False)

        async def exited(job: str, word: str) -> None:
            self.word = json.loads(word)

        return Host(
            experiment_id="e",
            service="s",
            wake=lambda name: None,
            deliver=deliver,
            followed=cast(Any, None),
            stored=stored,
            connections=Connections(),
            folder=self._folder,
            code=nothing,
            register=greet,
            exited=exited,
            silence_s=lambda name: asyncio.get_running_loop().time() - self.heard_s,
        )

    async def execute(self, pod: dict[str, Any], verb: str, stdin: AsyncIterator[bytes]) -> bytes:
        self.asked.append(verb)
        if verb == "channel":
            return protocol.encode({"channel": protocol.PUSH})
        if verb == "release":
            return protocol.encode({"released": True})
        if self.noise:
            return self.noise.pop()
        told = protocol.Decoder().feed(b"".join([data async for data in stdin]))
        start = told[0]["outboxes"][protocol.MAIN_OUTBOX]
        frames: list[dict[str, Any]] = [{"event": "greeting", "container": "c", "version": protocol.VERSION}]
        if start == STORED:
            end, box = STORED + len(RESULT) + 1, protocol.MAIN_OUTBOX
            frames.append({"event": "lines", "outbox": box, "start": start, "end": end, "lines": [RESULT]})
        if self.has_ended:
            frames.append({"event": "exited", "exit_code": 0, "container": "c", "pid": 5})
        return b"".join(protocol.encode(one) for one in [*frames, {"event": "read"}])


@contextlib.asynccontextmanager
async def followed(tmp_path: Path) -> AsyncIterator[World]:
    world = World(tmp_path)
    channel = ExecChannel(world.host(), world.execute, _no_record, lambda chosen: None, sends_code=True)
    spec: JobSpec = draft.spec()
    memory = JobMemory(job_name=spec.name, name="j", uid="u", container="main", pods={"j-worker-0": pod("u")})
    channel.follow(memory, str(tmp_path / "logs"))

    def replace(uid: str) -> None:
        memory.pods = {"j-worker-0": pod(uid)}
        channel.notice(memory)

    world.replace = replace
    try:
        yield world
    finally:
        await channel.close()


def pod(uid: str) -> dict[str, Any]:
    environment = [{"name": protocol.ENV_CHANNEL, "value": protocol.PUSH_OR_EXEC}]
    return {
        "metadata": {"name": "j-worker-0", "uid": uid, "labels": {REPORTS: "yes"}},
        "spec": {"containers": [{"name": "main", "env": environment}]},
        "status": {"containerStatuses": [{"name": "main", "state": {"running": {}}}]},
    }


async def _no_record(name: str) -> str:
    raise AssertionError("its parameters were fetched")


async def test_job_with_posts_is_not_read(tmp_path: Path) -> None:
    async with followed(tmp_path) as world:
        for _ in range(60):
            await asyncio.sleep(5)
            world.heard_s = asyncio.get_running_loop().time()
        assert world.asked == ["channel"]


async def test_silent_job_is_read_to_its_end_and_released(tmp_path: Path) -> None:
    async with followed(tmp_path) as world:
        await asyncio.sleep(30)
        assert world.lines == [RESULT] and world.greeted == [protocol.EXEC], world.asked
        world.has_ended = True
        await asyncio.sleep(20)
        assert (world.word["exitCode"], world.word["container"]) == (0, "c")
        assert world.asked[-1] == "release" and world.lines == [RESULT]


async def test_second_pod_is_read_after_first_has_ended(tmp_path: Path) -> None:
    """An operator may restart a pod: the new runner waits to be read, too."""
    async with followed(tmp_path) as world:
        world.has_ended = True
        await asyncio.sleep(60)
        assert world.asked.count("release") == 1
        world.word = {}
        world.replace("v")
        await asyncio.sleep(60)
        assert world.word["exitCode"] == 0 and world.asked.count("release") == 2


@pytest.mark.parametrize(
    "noise",
    [
        b"hello from the image, which prints this whatever is started in it\n",
        protocol.encode({"event": "lines", "outbox": 1}),
        protocol.encode({"event": "log", "file": "stdout", "offset": 0, "data": "n"}),
    ],
    ids=["no frame", "no lines", "no base64"],
)
async def test_unreadable_answer_skips_one_look(tmp_path: Path, noise: bytes) -> None:
    """Else the job would run for ever: its end is not read, and its pod waits for its release."""
    async with followed(tmp_path) as world:
        world.noise, world.has_ended = [noise], True
        await asyncio.sleep(90)
        assert world.noise == [] and world.word["exitCode"] == 0 and world.lines == [RESULT]


async def test_job_with_posts_again_is_not_read_any_more(tmp_path: Path) -> None:
    async with followed(tmp_path) as world:
        await asyncio.sleep(30)
        assert "read" in world.asked
        world.heard_s = asyncio.get_running_loop().time()
        await asyncio.sleep(10)  # a look may have been under way
        count = len(world.asked)
        for _ in range(20):
            world.heard_s = asyncio.get_running_loop().time()
            await asyncio.sleep(5)
        assert len(world.asked) == count
