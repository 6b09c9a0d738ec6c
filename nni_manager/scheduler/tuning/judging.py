"""Calls to the assessor, or to a tuner that stops trials: what they have to judge, and what they have seen."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from nni_manager.store.database import Database
from nni_manager.store.experiment import history

#: Verb of the tuner process and its arguments → its answer.
Call = Callable[..., Awaitable[dict[str, Any]]]


class Assessments:
    """The trials of one experiment that the assessor has to judge."""

    def __init__(self, database: Database) -> None:
        self._database = database
        #: Ids of trials to judge, in request order.
        self._wanted: dict[str, None] = {}
        #: Trial → number of results that the current process has seen.
        self._seen: dict[str, int] = {}

    @property
    def are_wanted(self) -> bool:
        return bool(self._wanted)

    def want(self, trial_id: str) -> None:
        """The trial has new intermediate results."""
        self._wanted[trial_id] = None

    def drop(self, trial_id: str) -> None:
        """The trial has ended."""
        self._wanted.pop(trial_id, None)
        self._seen.pop(trial_id, None)

    def drop_all(self) -> None:
        """Forgets what was to be judged."""
        self._wanted.clear()

    def begin_again(self, trial_ids: Iterable[str]) -> None:
        """A fresh process has seen no results: queues these open trials."""
        self._seen.clear()
        for trial_id in trial_ids:
            self.want(trial_id)

    async def ask(self, call: Call) -> list[str]:
        """Judges the queued trials; returns the ids of those to stop. Ended trials are skipped, as `learn` has their
        values."""
        wanted, self._wanted = list(self._wanted), {}
        found = await self._database.read(lambda c: history.open_intermediates(c, wanted))
        trials = [{**trial, "from": self._seen.get(trial["trial_id"], 0)} for trial in found]
        new = [trial for trial in trials if len(trial["values"]) > trial["from"]]
        if not new:
            return []
        answer = await call("judge", trials=new)
        self._seen.update((trial["trial_id"], len(trial["values"])) for trial in new)
        return list(answer["stop"])
