"""The attempts of all trials: when and where each ran. Only those of trials that changed are read again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nni_manager.analysis.asked import Asked
from nni_manager.analysis.columns.growing import Floats, Integers
from nni_manager.analysis.columns.trial_set import TrialSet
from nni_manager.store.experiment import trial_columns
from nni_manager.store.experiment.trial_columns import Row

#: Changed trials beyond which all attempts are read.
_MOST_CHANGED = 5000


class AttemptTable:
    """A row per attempt."""

    def __init__(self) -> None:
        #: Of the trials.
        self.positions: Integers = np.empty(0, np.int64)
        self.numbers: Integers = np.empty(0, np.int64)
        #: Milliseconds since the epoch; NaN: not yet.
        self.started: Floats = np.empty(0)
        self.ended: Floats = np.empty(0)
        #: Index in `places`.
        self.place: Integers = np.empty(0, np.int64)
        self.places: list[str] = []
        self._index: dict[str, int] = {}

    def replace(self, trials: TrialSet, changed: Sequence[int], rows: Sequence[Row]) -> None:
        """Drops the rows of the trials at the positions `changed`, and adds `rows`."""
        kept = ~np.isin(self.positions, list(changed))
        numbers, attempts, places, started, ended = zip(*rows, strict=True) if rows else ((),) * 5
        self.positions = np.concatenate((self.positions[kept], trials.positions(numbers)))
        self.numbers = np.concatenate((self.numbers[kept], np.array(attempts, np.int64)))
        self.started = np.concatenate((self.started[kept], np.array(started, np.float64)))
        self.ended = np.concatenate((self.ended[kept], np.array(ended, np.float64)))
        codes = [self._index.setdefault(place, len(self._index)) for place in places]
        self.place = np.concatenate((self.place[kept], np.array(codes, np.int64)))
        self.places = list(self._index)


def attempts(asked: Asked) -> AttemptTable:
    """The attempts of all trials."""
    trials, connection = asked.trials, asked.connection
    table: AttemptTable | None = trials.kept.get("attempts")
    changed, trials.changed = trials.changed, set()
    if table is None or len(changed) > _MOST_CHANGED:
        table = trials.kept["attempts"] = AttemptTable()
        table.replace(trials, (), trial_columns.all_attempts(connection))
    elif changed:
        ids = [trials.ids[position] for position in changed]
        table.replace(trials, tuple(changed), trial_columns.attempts_of(connection, ids))
    return table


def places(asked: Asked) -> list[str]:
    """The place, or else the service, of each trial's latest attempt; empty: it has none."""
    table = attempts(asked)
    codes = np.full(len(asked.trials), -1, np.int64)
    order = np.argsort(table.numbers, kind="stable")  # the latest is written last
    codes[table.positions[order]] = table.place[order]
    names = [*table.places, ""]
    return [names[code] for code in codes.tolist()]
