"""Experiments side by side: what differs in their configs, then what came of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nni_manager.analysis.flattened import flat
from nni_manager.config.masking import mask
from nni_manager.domain.errors import NniManagerError
from nni_manager.store.index import overview
from nni_manager.store.index.index import Entry
from nni_manager.store.index.overview import Overview
from nni_manager.web import formats, shown_experiments
from nni_manager.web.experiment.config_page import lines as fields_of
from nni_manager.web.table.compared import Line, lines

if TYPE_CHECKING:
    from nni_manager.web.rendering import PagesContext


@dataclass(frozen=True, slots=True, kw_only=True)
class OneExperiment:
    """A column of the comparison."""

    entry: Entry
    status: str
    #: Why it cannot be read; empty: it was read.
    error: str
    #: Path of each field of the config → its value, secrets masked.
    fields: dict[str, str]
    #: What came of it: best, counts, times.
    facts: dict[str, Any]
    #: Parameters of its best trial, names of nested ones joined by dots.
    best: Mapping[str, Any]

    @property
    def name(self) -> str:
        return self.entry.name or self.entry.id


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    experiments: list[OneExperiment]
    #: Fields of the configs, those that differ first.
    config: list[Line]
    #: Number of fields that are left out, as they are the same everywhere.
    hidden: int
    facts: list[Line]
    everything: bool


def build(experiments: Sequence[OneExperiment], *, everything: bool) -> Comparison:
    """`everything`: fields that do not differ, too. An experiment that cannot be read has no part in what differs."""
    read = [one for one in experiments if not one.error]
    config = sorted(lines("", [one.fields for one in read]), key=lambda line: not line.differs)
    shown = config if everything else [line for line in config if line.differs]
    facts = [*lines("", [one.facts for one in read]), *lines("of the best trial", [one.best for one in read])]
    return Comparison(
        experiments=[*read, *(one for one in experiments if one.error)],
        config=shown,
        hidden=len(config) - len(shown),
        facts=facts,
        everything=everything,
    )


async def read(context: PagesContext, id: str) -> OneExperiment:
    """One experiment; one that cannot be read says why. Raises NotFound for an id that is not known."""
    entry = await context.service.entry(id)
    live, now_ms = context.service.live(id), context.clock()
    try:
        found = await context.service.read(id, lambda c: overview.load(c, live, now_ms))
    except NniManagerError as error:
        return OneExperiment(entry=entry, status=entry.status, error=str(error), fields={}, facts={}, best={})
    status = shown_experiments.status(found, entry, at_work=live.at_work)
    return OneExperiment(
        entry=entry,
        status=status,
        error="",
        fields=dict(fields_of(mask(found.config))),
        facts=_facts(found, entry),
        best=flat(found.best.parameters) if found.best else {},
    )


def _facts(found: Overview, entry: Entry) -> dict[str, Any]:
    limit = found.config.get("maxTrialNumber")
    counts = {f"trials {status}": count for status, count in sorted(found.counts.items())}
    best = {"best trial": found.best.trial_id} if found.best else {}
    return {
        "best result": found.best.value if found.best else "none yet",
        "better is": "greater" if found.summary.optimize_mode == "maximize" else "smaller",
        **best,
        "trials that have ended": shown_experiments.ended(found),
        "limit of trials": "no limit" if limit is None else limit,
        **counts,
        "time at work": formats.duration(found.exec_ms),
        "created": formats.moment(entry.created_ms),
    }
