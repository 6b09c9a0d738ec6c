"""The trials that a chart draws: their values, and the same sample on every reload."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from nni_manager.analysis import selection
from nni_manager.analysis.columns.column import Floats, Integers, Mask
from nni_manager.analysis.columns.trial_set import STATUSES, TrialSet
from nni_manager.analysis.query import DEFAULT_KEY
from nni_manager.analysis.selection import Asked
from nni_manager.domain.trial import TrialStatus

_PROVISIONAL = [
    STATUSES.index(status) for status in (TrialStatus.RUNNING, TrialStatus.UNKNOWN, TrialStatus.EARLY_STOPPED)
]


@dataclass(frozen=True, slots=True)
class Drawn:
    """The trials with a finite value that the filter and the clip choose."""

    #: By position: a final result; of running and early-stopped trials without one, the latest value.
    values: Floats
    #: The trials, in the order of their numbers.
    positions: Integers
    #: How many the filter chooses.
    of: int
    #: How many of them have a final result that is no finite number.
    not_numbers: int
    #: How many are hidden as outliers.
    clipped: int

    def counts(self, shown: int) -> dict[str, int]:
        """The fields that say how many trials an answer shows."""
        return {"shown": shown, "of": self.of, "notNumbers": self.not_numbers, "clipped": self.clipped}


def drawn(asked: Asked, *, provisional: bool) -> Drawn:
    """The trials to draw. `provisional`: those without a final result, too; else only those that can be the best."""
    trials, query = asked.trials, asked.query
    mask = selection.chosen(trials, query)
    values, usable = selection.results(trials, query.key), selection.comparable(trials, query.key)
    if provisional and query.key == DEFAULT_KEY:
        latest = np.isin(trials["status"], _PROVISIONAL) & ~trials["has_final"]
        values = np.where(latest, trials["last"], values)
        usable = usable | (np.isin(trials["status"], _PROVISIONAL) & np.isfinite(values))
    ended = (trials["status"] == selection.SUCCEEDED) & trials["has_final"]
    positions = np.flatnonzero(mask & usable)
    kept = _unclipped(values[positions], query.clip)
    return Drawn(values, positions[kept], int(mask.sum()), int((mask & ended & ~usable).sum()), int((~kept).sum()))


def seeds(trials: TrialSet) -> Integers:
    """A number per trial that depends on its id alone: the trials with the lowest are a sample that stays."""
    known: Integers = trials.kept.get("seeds", np.empty(0, np.int64))
    if len(known) < len(trials):
        new = [zlib.crc32(id.encode()) for id in trials.ids[len(known) :]]
        known = trials.kept["seeds"] = np.concatenate((known, np.array(new, np.int64)))
    return known


def sample(trials: TrialSet, positions: Integers, most: int, always: Mask | None = None) -> Integers:
    """At most `most` of the positions, in their order; those that are in `always` first."""
    if len(positions) <= most:
        return positions
    rank = seeds(trials)[positions].astype(np.float64)
    if always is not None:
        rank[always[positions]] = -1
    found: Integers = positions[np.sort(np.argpartition(rank, most)[:most])]
    return found


def selected(asked: Asked) -> list[int]:
    """Positions of the selected trials that there are."""
    found = (asked.trials.position(number) for number in asked.query.selected)
    return [position for position in found if position is not None]


def flags(trials: TrialSet, *positions: Any) -> Mask:
    """A mask of all trials that is set at these positions."""
    found = np.zeros(len(trials), np.bool_)
    for some in positions:
        found[np.asarray(some, np.int64)] = True
    return found


def _unclipped(values: Floats, reach: float | None) -> Mask:
    """Which values are no outliers; all without a reach."""
    if reach is None or len(values) < 4:
        return np.ones(len(values), np.bool_)
    low, high = np.quantile(values, (0.25, 0.75))
    kept: Mask = (values >= low - reach * (high - low)) & (values <= high + reach * (high - low))
    return kept
