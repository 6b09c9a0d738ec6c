"""An experiment for asyncio programs: the methods of `Experiment`, awaitable."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextlib import aclosing, closing
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

from nni_manager.domain.errors import NniManagerError
from nni_manager.programs.experiment import Experiment
from nni_manager.programs.waiting import ExperimentFailed, StreamEnded, StreamEnds, StreamReader, judge

if TYPE_CHECKING:
    from nni_manager.programs.progress import State
    from nni_manager.programs.records import Best, Trial, Trials

Given = ParamSpec("Given")
Answer = TypeVar("Answer")


class AsyncExperiment:
    """`Experiment` for asyncio: the same arguments, methods and errors.

    Calls of the daemon are made in threads. Waiting can be cancelled; the experiment then keeps running.
    """

    def __init__(self, *config: Any, **fields: Any) -> None:
        self._experiment = Experiment(*config, **fields)

    @classmethod
    async def connect(cls, id: str, **place: Any) -> Self:
        return cls._of(await asyncio.to_thread(Experiment.connect, id, **place))

    @classmethod
    async def view(cls, id: str, **options: Any) -> Self:
        return cls._of(await asyncio.to_thread(Experiment.view, id, **options))

    @classmethod
    def _of(cls, experiment: Experiment) -> Self:
        self = cls.__new__(cls)
        self._experiment = experiment
        return self

    @property
    def id(self) -> str:
        return self._experiment.id

    async def start(self, *, port: int | None = None, url_prefix: str = "") -> Self:
        """Like `Experiment.start`, but prints nothing.

        A cancelled call ends after the daemon's answer: a created experiment then has its `id`, and is running.
        """
        await _answered(self._experiment.start, port=port, url_prefix=url_prefix, progress=False)
        return self

    async def run(self, *, port: int | None = None, url_prefix: str = "") -> Self:
        await self.start(port=port, url_prefix=url_prefix)
        await self.wait()
        await self.stop()
        return self

    async def wait(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109 - as `Experiment.wait`
        """Wait until the experiment is done; False after `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout):
                return await self._end()
        except TimeoutError:
            return False

    async def _end(self) -> bool:
        ends = StreamEnds(self.id)
        while True:
            ends.begin()
            heard = False
            async with aclosing(self._news(may_start=ends.may_start)) as states:
                async for news in states:
                    if isinstance(news, StreamEnded):
                        await asyncio.sleep(ends.note(news, heard=heard))
                        break
                    heard = True
                    if (verdict := judge(news)) is not None:
                        if not verdict.is_good:
                            raise ExperimentFailed(verdict.text)
                        return True
            if not await self._call(self._experiment.goes_on, may_start=ends.may_start):
                raise NniManagerError(await self._call(self._experiment.broken_off))

    async def events(self) -> AsyncGenerator[State]:
        """Its states, now and after every change, until it is closed or the stream breaks."""
        async with aclosing(self._news(may_start=True)) as states:
            async for news in states:
                if isinstance(news, StreamEnded):
                    return
                yield news

    async def _news(self, *, may_start: bool) -> AsyncGenerator[State | StreamEnded]:
        """Its states, and then the end of their stream."""
        loop, news = asyncio.get_running_loop(), asyncio.Queue[Any]()
        states = partial(self._experiment.events, may_start=may_start)
        with closing(StreamReader(states, lambda latest: loop.call_soon_threadsafe(news.put_nowait, latest))):
            while True:
                yield (latest := await news.get())
                if isinstance(latest, StreamEnded):
                    return

    async def stop(self) -> None:
        await self._call(self._experiment.stop)

    async def resume(self, *, secrets: Collection[str] | None = ()) -> Self:
        await self._call(self._experiment.resume, secrets=secrets)
        return self

    async def change(self, **fields: Any) -> None:
        await self._call(self._experiment.change, **fields)

    async def delete(self) -> None:
        await self._call(self._experiment.delete)

    async def state(self) -> dict[str, Any]:
        return await self._call(lambda: self._experiment.state)

    async def status(self) -> str:
        return await self._call(lambda: self._experiment.status)

    async def best(self) -> Best | None:
        return await self._call(lambda: self._experiment.best)

    async def trials(self, status: str | None = None) -> Trials:
        return await self._call(self._experiment.trials, status)

    async def trial(self, trial_id: str) -> Trial:
        return await self._call(self._experiment.trial, trial_id)

    async def intermediate_results(self, trial_id: str) -> list[Any]:
        return await self._call(self._experiment.intermediate_results, trial_id)

    async def log(self, trial_id: str, name: str = "stdout") -> str:
        return await self._call(self._experiment.log, trial_id, name)

    async def add_trial(self, parameters: Mapping[str, Any]) -> str:
        return await self._call(self._experiment.add_trial, parameters)

    async def kill_trial(self, trial_id: str) -> None:
        await self._call(self._experiment.kill_trial, trial_id)

    async def __aenter__(self) -> Self:
        if self._experiment.is_started:
            return self
        try:
            return await self.start()
        except asyncio.CancelledError:
            if self._experiment.is_started:
                await self.stop()  # `__aexit__` is not called
            raise

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def __repr__(self) -> str:
        return f"<Async{repr(self._experiment)[1:]}"

    @staticmethod
    async def _call(function: Callable[Given, Answer], *args: Given.args, **others: Given.kwargs) -> Answer:
        return await asyncio.to_thread(function, *args, **others)


async def _answered(function: Callable[Given, Answer], *args: Given.args, **others: Given.kwargs) -> Answer:
    """Call the function in a thread, which cannot be interrupted: a cancellation waits for its end."""
    call = partial(copy_context().run, function, *args, **others)
    # not a task: `asyncio.run` cancels all tasks at its end, but waits for threads
    calling = asyncio.get_running_loop().run_in_executor(None, call)
    try:
        return await asyncio.shield(calling)
    except asyncio.CancelledError:
        await asyncio.wait({calling})
        calling.exception()  # retrieved, so that it is not logged
        raise
