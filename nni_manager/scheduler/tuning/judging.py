"""Calls to the assessor: trials with new intermediate results, and how many results it has seen."""

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

    def begin_again(self, trial_ids: Iterable[str]) -> None:
        """A fresh process has seen no results: queues these open trials."""
        self._seen.clear()
        for trial_id in trial_ids:
            self.want(trial_id)

    async def ask(self, call: Call) -> list[str]:
        """Judges the queued trials; returns the ids of those to stop. Ended trials are skipped, as `learn` has their
        values."""
        wanted, self._wanted = list(self._wanted), {}
        values = await self._database.read(lambda c: history.open_intermediates(c, wanted))
        new = {id_: found for id_, found in values.items() if len(found) > self._seen.get(id_, 0)}
        if not new:
            return []
        trials = [{"trial_id": id_, "values": found, "from": self._seen.get(id_, 0)} for id_, found in new.items()]
        answer = await call("judge", trials=trials)
        self._seen.update((id_, len(found)) for id_, found in new.items())
        return list(answer["stop"])
