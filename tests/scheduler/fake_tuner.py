"""A tuner's process that does as it is told, and a feed around it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nni_manager.domain.errors import TunerDied, TunerNotStarted, TunerRaised
from nni_manager.domain.experiment import ExperimentSpec, ExperimentWarning, LiveSpec
from nni_manager.scheduler.tuning import watched_tuner
from nni_manager.scheduler.tuning.feed import TunerFeed
from nni_manager.scheduler.tuning.host import HostPlace
from nni_manager.store.database import Database

Arguments = dict[str, Any]


class Script:
    """What the processes of one feed do, and what they were asked, oldest first."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, str, Arguments]] = []
        self.closed: list[tuple[int, bool]] = []
        #: Verb → what the next calls of it do instead: an exception, an answer, or ``silence``.
        self.next: dict[str, list[object]] = {}
        self.proposes_ahead = False
        self.watches = False
        self.withdraws = False
        self.left = 1000
        self.started = 0
        #: Number of the next starts that find no free process.
        self.shortages = 0
        #: What ends a silent call.
        self.speak = asyncio.Event()
        #: What the process calls when an owed proposal is ready.
        self.on_news: Callable[[], object] = lambda: None

    def of(self, verb: str) -> list[Arguments]:
        return [arguments for _, name, arguments in self.calls if name == verb]

    @property
    def verbs(self) -> list[str]:
        return [f"{number}:{verb}" for number, verb, _ in self.calls]

    async def answer(self, verb: str, arguments: Arguments, on_silence: Callable[[], object]) -> object:
        planned = self.next.get(verb, [])
        what = planned.pop(0) if planned else None
        if isinstance(what, BaseException):
            raise what
        if what == "silence":
            on_silence()
            await self.speak.wait()
        elif what is not None:
            return what
        return getattr(self, f"_{verb}", lambda _: {})(arguments)

    def _start(self, arguments: Arguments) -> object:
        return {name: getattr(self, name) for name in ("proposes_ahead", "watches", "withdraws")}

    def _propose(self, arguments: Arguments) -> object:
        ids = arguments["ids"][: self.left]
        self.left -= len(ids)
        return {"proposals": [{"parameter_id": id_, "parameters": {"x": id_}} for id_ in ids]}

    def _judge(self, arguments: Arguments) -> object:
        last = {trial["trial_id"]: trial["values"][-1] for trial in arguments["trials"]}
        return {"stop": [id_ for id_, value in last.items() if isinstance(value, int | float) and value < 0]}


class FakeHost:
    script: Script

    def __init__(self, number: int) -> None:
        self.number = number
        self.is_closed = asyncio.Event()

    @classmethod
    async def start(cls, place: HostPlace, spec: ExperimentSpec, on_news: Callable[[], object]) -> FakeHost:
        await asyncio.sleep(0)
        if cls.script.shortages:
            cls.script.shortages -= 1
            raise TunerNotStarted("the tuner cannot be started with python: Resource temporarily unavailable")
        cls.script.on_news = on_news
        cls.script.started += 1
        return cls(cls.script.started)

    async def call(self, verb: str, *, patience_s: float, on_silence: Callable[[], object], **arguments: Any) -> object:
        self.script.calls.append((self.number, verb, arguments))
        answer = asyncio.ensure_future(self.script.answer(verb, arguments, on_silence))
        end = asyncio.ensure_future(self.is_closed.wait())
        try:
            await asyncio.wait({answer, end}, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                raise TunerDied("the tuner's process ended (closed)")
            return await answer
        finally:
            answer.cancel()
            end.cancel()

    async def stacks(self) -> str:
        return "File tuner.py, line 7"

    async def close(self, *, kill: bool = False) -> None:
        self.script.closed.append((self.number, kill))
        self.is_closed.set()


class Feed:
    """A feed at work; `until` waits for what shall come of it."""

    def __init__(self, database: Database, spec: ExperimentSpec, script: Script, told: int) -> None:
        self.script = script
        self._news = asyncio.Event()
        place = HostPlace(interpreter="python", environment={}, folder=Path("/x"), log_folder=Path("/x"))
        self._spec = LiveSpec(spec)
        self.warnings: list[ExperimentWarning] = []
        self.feed = TunerFeed(
            database,
            self._spec,
            place,
            reported=told,
            patience_s=60,
            wake=self._news.set,
            warn=self.warnings.append,
        )

    def change_search_space(self, space: dict[str, object]) -> None:
        """A person did."""
        self._spec.now = replace(self._spec.now, search_space=space)
        self.feed.change_search_space()

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(5):
            while not condition():  # noqa: ASYNC110 (any condition; no event tells of each)
                await asyncio.sleep(0.001)

    async def proposed(self, count: int) -> list[int]:
        await self.until(lambda: len(self.feed.proposals) >= count)
        return [proposal.parameter_id for proposal in self.feed.proposals]


@asynccontextmanager
async def feeding(
    monkeypatch: pytest.MonkeyPatch,
    path: Path,
    spec: ExperimentSpec,
    script: Script | None = None,
    told: int = 0,
    database_class: type[Database] = Database,
) -> AsyncIterator[Feed]:
    """Runs a feed on the database at `path`."""
    script = script or Script()
    monkeypatch.setattr(watched_tuner, "TunerHosts", type("Host", (FakeHost,), {"script": script}))
    database = database_class(path)
    feed = Feed(database, spec, script, told)
    task = asyncio.create_task(feed.feed.run())
    try:
        yield feed
        assert not task.done(), task.exception()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await database.close()


def raised(words: str) -> TunerRaised:
    return TunerRaised(words, f"Traceback: {words}")


def died() -> TunerDied:
    return TunerDied("the tuner's process ended (signal SIGKILL)")
