"""The overview of one experiment, its event stream, and the frame of all its pages.

Each page is a template that extends ``experiment.html``, which contains heading and tabs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import IntEnum

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nni_manager.domain.experiment import ExperimentStatus, ExperimentWarning, Hold, HoldCode
from nni_manager.domain.service import ServiceStatus
from nni_manager.domain.trial_status import failed
from nni_manager.store.index.overview import Overview
from nni_manager.streams.event_stream import EventStream
from nni_manager.web import best_so_far, shown_experiments
from nni_manager.web.rendering import ask, context_of, experiment_id, picture, render
from nni_manager.web.shared_pages import shared
from nni_manager.web.shown_experiments import Progress
from nni_manager.web.stream import PageEvents
from nni_manager.web.table.page_query import PageQuery
from nni_manager.web.trial import shown_trial
from nni_manager.web.trial.log_page import LogName, LogTail


@shared
async def _overview(request: Request) -> Response:
    query = PageQuery.parse(request.query_params.multi_items())
    context_of(request).analysis.prepare(experiment_id(request))  # while the browser loads what draws the charts
    return await render_tab(request, "overview.html", tab="", query=query)


async def _best_so_far(request: Request) -> Response:
    """The chart of results as an image, for pages without JavaScript."""
    query = PageQuery.parse(request.query_params.multi_items()).query
    found = await ask(request, "results", replace(query, x="number"))
    points = found["points"]
    results = zip(points["number"], points["value"], points["feasible"], strict=True)
    return picture(best_so_far.image(results, maximize=found["direction"] == "maximize"))


async def _stream(request: Request) -> Response:
    """The event stream of a page. ``?log=17.1.stdout`` adds that log: trial number, attempt, file.

    Errors are answered with an error page before the stream starts.
    """
    context, id_ = context_of(request), experiment_id(request)
    await context.commands.entry(id_)
    asked = request.query_params.get("log", "")
    log = LogTail(context.commands, id_, LogName.parse(asked)) if asked else None
    return EventStream(PageEvents(request.app.state.states, id_, log), context.stopping)


async def render_tab(request: Request, template: str, *, tab: str, status: int = 200, **values: object) -> Response:
    """Render a page of one experiment. `tab`: last part of its path, which selects the tab; "": overview.

    Raises NotFound or StoreError.
    """
    shown = await shown_experiments.shown(context_of(request), experiment_id(request))
    told = notices_of(shown.overview, shown.status, shown.progress, shown.no_more_trials)
    best = shown.overview.best
    copies = {
        "best_json": json.dumps(best.parameters, ensure_ascii=False) if best else "",
        "best_code": shown_trial.as_code(best.parameters) if best else "",
    }
    query = values.get("query")
    # charts and table share their filters
    tab_query = query.string(page=None, trial=None) if isinstance(query, PageQuery) else ""
    return render(
        request, template, status, shown=shown, tab=tab, notices=told, tab_query=tab_query, **copies, **values
    )


#: Holds that end automatically.
_WAITS = frozenset({HoldCode.TUNER_SILENT, HoldCode.PLATFORM_UNAVAILABLE, HoldCode.STORE_UNAVAILABLE})
#: Warnings about causes that will soon stop all experiments.
_URGENT = frozenset({"DISK_LOW"})
#: Minimum number of ended trials before failures become an urgent notice.
_FEW = 5


class Level(IntEnum):
    """Severity of a notice; the name is its class in the style sheet."""

    #: The user must act.
    ACT = 0
    #: It waits, and continues automatically.
    WAIT = 1
    #: For information.
    INFO = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    level: Level
    sentence: str
    #: What to do; empty: nothing, or part of the sentence.
    step: str = ""
    #: Last part of the path of the page with details; empty: no page.
    page: str = ""
    code: str = ""
    #: Traceback or stack; empty: none.
    details: str = ""


def notices_of(found: Overview, status: ExperimentStatus, now: Progress, no_more_trials: str) -> list[Notice]:
    """The notices about an experiment, most serious first."""
    notices = [
        *_holds(found.hold),
        *_errors(found),
        *_services(found),
        *_failures(found, now),
        *_standstill(found, status, now),
        *(_warning(one) for one in found.warnings),
    ]
    if no_more_trials:
        step = "raise the limit to continue" if status.is_active or status is ExperimentStatus.DONE else ""
        step = step if "is reached" in no_more_trials else ""
        notices.append(Notice(level=Level.INFO, sentence=f"no new trials: {no_more_trials}", step=step))
    return sorted(notices, key=lambda notice: notice.level)


def _warning(one: ExperimentWarning) -> Notice:
    level = Level.ACT if one.code in _URGENT else Level.INFO
    return Notice(level=level, sentence=one.message, code=one.code)


def _holds(hold: Hold | None) -> Iterator[Notice]:
    if hold is None:
        return
    waits = hold.code in _WAITS
    step = "the experiment continues automatically" if waits else "fix the cause, then press Resume"
    level = Level.WAIT if waits else Level.ACT
    yield Notice(level=level, sentence=f"on hold: {hold.sentence}", step=step, code=hold.code, details=hold.details)


def _errors(found: Overview) -> Iterator[Notice]:
    for sentence in found.errors:
        if found.hold is None or sentence != found.hold.sentence:
            is_error = found.row.status is ExperimentStatus.ERROR and sentence == found.row.error
            step = "fix the cause, then press Resume" if is_error else ""
            yield Notice(level=Level.ACT, sentence=sentence, step=step, page="log")


def _services(found: Overview) -> Iterator[Notice]:
    for service in found.services:
        if service.status is ServiceStatus.AWAY:
            sentence = f"{service.name} is away: {service.sentence}"
            yield Notice(level=Level.WAIT, sentence=sentence, step="its trials continue when it answers again")
        elif service.status is ServiceStatus.ON_HOLD and not found.hold:
            sentence = f"{service.name} is on hold: {service.sentence}"
            yield Notice(level=Level.ACT, sentence=sentence, step="fix the cause, then press Resume")


def _failures(found: Overview, now: Progress) -> Iterator[Notice]:
    count, common = failed(found.counts), found.summary.common_failure
    if not count or common is None:
        return
    alike = ""
    if count > 1:
        alike = f", {common.trials} of them alike" if common.trials > 1 else ", for example"
    sentence = f"{count} of {now.ended} trials failed{alike}: {common.sentence}"
    level = Level.ACT if now.ended >= _FEW and 2 * count > now.ended else Level.INFO
    yield Notice(level=level, sentence=sentence, page="failures")


def _standstill(found: Overview, status: ExperimentStatus, now: Progress) -> Iterator[Notice]:
    if status.is_active and not found.hold and not now.running and now.waiting.trials:
        sentence = f"no trials run; {now.waiting.alike} of {now.waiting.trials} wait: {now.waiting.sentence}"
        yield Notice(level=Level.WAIT, sentence=sentence, page="trials?status=WAITING")


_HERE = "/experiments/{id}"
ROUTES = [
    Route(_HERE, _overview),
    Route(f"{_HERE}/best-so-far.svg", _best_so_far),
    Route(f"{_HERE}/stream", _stream),
]
