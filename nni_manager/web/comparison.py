"""``/compare-experiments?ids=a,b``: up to five experiments side by side; without ids, the form that chooses them.

Differences of their configs come first, then their results.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nni_manager.analysis.flattened import flat
from nni_manager.config.secrets import mask
from nni_manager.domain.errors import InvalidInput, NniManagerError, NotFound
from nni_manager.domain.formats import duration
from nni_manager.domain.ids import EXPERIMENT_ID
from nni_manager.domain.trial_status import ended
from nni_manager.store.index import overview
from nni_manager.store.index.index import Entry
from nni_manager.store.index.overview import Overview
from nni_manager.web import formats, shown_experiments
from nni_manager.web.config_page import lines as fields_of
from nni_manager.web.context import PagesContext
from nni_manager.web.rendering import context_of, render
from nni_manager.web.table.trial_table import Line, chosen, lines

#: Maximum number of experiments side by side: columns and curves of more are hard to distinguish.
MOST = 5
#: Experiments that the form offers, newest first.
_OFFERED = 200


async def _page(request: Request) -> Response:
    context, ids = context_of(request), _ids(request)
    if len(ids) < 2:
        entries = (await context.commands.entries())[: -_OFFERED - 1 : -1]
        return render(request, "choose_experiments.html", entries=entries, ids=ids, most=MOST)
    found = await asyncio.gather(*(_read(context, id_) for id_ in ids))
    everything = request.query_params.get("all") == "1"
    table = compare(found, everything=everything)
    curves = [{"id": one.entry.id, "name": one.entry.title} for one in table.experiments if not one.error]
    return render(request, "compare_experiments.html", table=table, ids=",".join(ids), curves=curves)


def _ids(request: Request) -> list[str]:
    """The distinct ids in the address: joined by commas, or in one field each, as the form sends them.

    Raises NotFound for a malformed id, InvalidInput for too many.
    """
    given = ",".join(request.query_params.getlist("ids")).split(",")
    ids = list(dict.fromkeys(text.strip() for text in given if text.strip()))
    for id_ in ids:
        if EXPERIMENT_ID.fullmatch(id_) is None:
            raise NotFound(f"{id_!r} is not an experiment id; the start page lists all experiments")
    if len(ids) > MOST:
        raise InvalidInput(f"ids: {len(ids)} experiments cannot be compared, at most {MOST}; leave some out")
    return ids


@dataclass(frozen=True, slots=True, kw_only=True)
class OneExperiment:
    """A column of the comparison."""

    entry: Entry
    status: str
    #: Why the experiment cannot be read; empty: it was read.
    error: str
    #: Path of each field of the config → its value, secrets masked.
    fields: dict[str, str]
    #: Best result, counts and times.
    facts: dict[str, Any]
    #: Parameters of its best trial, names of nested ones joined by dots.
    best: Mapping[str, Any]
    #: As in `StoredExperiment`.
    ended_as: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    experiments: list[OneExperiment]
    #: Fields of the configs; those that differ come first.
    config: list[Line]
    #: Number of hidden fields, whose values are identical.
    hidden: int
    facts: list[Line]
    everything: bool


def compare(experiments: Sequence[OneExperiment], *, everything: bool) -> Comparison:
    """Compare experiments, except unreadable ones. `everything`: include fields that do not differ."""
    _read = [one for one in experiments if not one.error]
    config = lines("", [one.fields for one in _read])
    shown = chosen(config, everything=everything)
    facts = [*lines("", [one.facts for one in _read]), *lines("of the best trial", [one.best for one in _read])]
    return Comparison(
        experiments=[*_read, *(one for one in experiments if one.error)],
        config=shown,
        hidden=len(config) - len(shown),
        facts=facts,
        everything=everything,
    )


async def _read(context: PagesContext, id: str) -> OneExperiment:
    """Read one experiment; `error` states why it cannot be read. Raises NotFound for an unknown id."""
    entry = await context.commands.entry(id)
    live, now_ms = context.commands.live(id), context.clock()
    try:
        found = await context.commands.read(id, lambda c: overview.load(c, live, now_ms))
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
        ended_as=found.row.ended_as,
    )


def _facts(found: Overview, entry: Entry) -> dict[str, Any]:
    limit = found.config.get("maxTrialNumber")
    counts = {f"trials {status}": count for status, count in sorted(found.counts.items())}
    best = {"best trial": found.best.trial_id} if found.best else {}
    return {
        "best result": found.best.value if found.best else "none yet",
        "direction": found.summary.direction_words if found.summary.has_one_direction else "several objectives",
        **best,
        "ended trials": ended(found.counts),
        "maximum number of trials": "no limit" if limit is None else limit,
        **counts,
        "time active": duration(found.exec_ms),
        "created": formats.moment(entry.created_ms),
    }


ROUTES = [Route("/compare-experiments", _page)]
