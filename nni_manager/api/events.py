"""Server-sent events of the list of experiments and of one experiment, its trials and its results."""

from __future__ import annotations

from asyncio import Event
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from pydantic import Field

from nni_manager.api import experiment_description as description
from nni_manager.api.context import ApiContext, Context, ExperimentId
from nni_manager.api.errors import KNOWN_QUERY, documented
from nni_manager.api.schemas.daemon import Wire
from nni_manager.api.schemas.experiments import ExperimentState, ExperimentSummary
from nni_manager.api.schemas.trials import Metric, Trial
from nni_manager.domain.metrics import MetricType
from nni_manager.store.connection import Connection
from nni_manager.store.experiment import answers
from nni_manager.store.index.index import Entry
from nni_manager.streams.event_stream import EventStream, Part, event, last_event_id

router = APIRouter(prefix="/api/v1/experiments", dependencies=KNOWN_QUERY)

#: Results per read.
_PAGE = 1000
_RATE = (
    "Server-sent events, at most five times a second; the data of each is JSON on one line. A comment is sent after "
)
_RATE += "15 seconds without events."


def _answers(model: type[Any], events: str, *refusals: int) -> dict[int | str, dict[str, Any]]:
    return {200: {"model": model, "description": f"{_RATE} {events}"}, **documented(*refusals)}


_DATA = "JSON on one line."  # each model of an event below describes its lines `event`, `data` and `id`


class Removed(Wire):
    """An experiment that was deleted."""

    id: str = Field(description="Its id.")


class ListEvent(Wire):
    """An event of the list of experiments."""

    event: Literal["experiment", "removed"] = Field(description="Kind of `data`.")
    data: ExperimentSummary | Removed = Field(description=_DATA)


class StateEvent(Wire):
    """An event of one experiment."""

    event: Literal["state"] = Field(description="Always `state`.")
    data: ExperimentState = Field(description=_DATA)


class TrialEvent(Wire):
    """An event of an experiment's trials."""

    event: Literal["trial"] = Field(description="Always `trial`.")
    data: Trial = Field(description=_DATA)
    id: int = Field(
        description="Number of trials that had ended. Send it as `Last-Event-ID` to continue the stream from there."
    )


class MetricEvent(Wire):
    """An event of an experiment's results."""

    event: Literal["metric"] = Field(description="Always `metric`.")
    data: Metric = Field(description=_DATA)
    id: int = Field(description="The result's id. Send it as `Last-Event-ID` to continue the stream from there.")


@router.get(
    "/events",
    operation_id="followExperiments",
    summary="Follow the list of experiments",
    tags=["experiments"],
    response_class=EventStream,
    status_code=200,
    responses=_answers(ListEvent, "`experiment`: a new or changed one; `removed`: a deleted one."),
)
async def follow_all(context: Context) -> EventStream:
    """Sends every experiment, then each change. Ends with the daemon."""
    return EventStream(_List(context), context.stopping)


@router.get(
    "/{id}/events",
    operation_id="followExperiment",
    summary="Follow an experiment",
    tags=["experiments"],
    response_class=EventStream,
    status_code=200,
    responses=_answers(StateEvent, "`state`: everything except the config.", 404, 503),
)
async def follow(id: ExperimentId, context: Context) -> EventStream:
    """Ends after the last state of a closed experiment, and with the daemon."""
    await description.state(context, id)  # raises before the stream begins
    return EventStream(_State(context, id), context.stopping)


@router.get(
    "/{id}/trials/events",
    operation_id="followTrials",
    summary="Follow the trials of an experiment",
    tags=["trials"],
    response_class=EventStream,
    status_code=200,
    responses=_answers(TrialEvent, "`trial`: a new or changed one.", 404, 503),
)
async def follow_trials(id: ExperimentId, context: Context, request: Request) -> EventStream:
    """Sends every trial, then each change. With `Last-Event-ID`, trials that had ended before are omitted. Ends when
    the experiment is closed, and with the daemon."""
    await description.state(context, id)
    begun = await _begun(context, id, request, answers.ended)
    return EventStream(_Trials(context, id, begun or 0), context.stopping)


@router.get(
    "/{id}/metrics/events",
    operation_id="followMetrics",
    summary="Follow the results of an experiment",
    tags=["results"],
    response_class=EventStream,
    status_code=200,
    responses=_answers(MetricEvent, "`metric`: a result.", 400, 404, 503),
)
async def follow_metrics(
    id: ExperimentId,
    context: Context,
    request: Request,
    trial: Annotated[str | None, Query(description="Only those of this trial.")] = None,
    type: Annotated[MetricType | None, Query(description="Only intermediate (PERIODICAL) or FINAL ones.")] = None,
    after: Annotated[int, Query(ge=0, le=2**53, description="Only those with a greater id.")] = 0,
) -> EventStream:
    """Sends each result once, in the order of storing, from `after` or `Last-Event-ID`. Ends when the experiment is
    closed, and with the daemon."""
    await description.state(context, id)
    begun = await _begun(context, id, request, answers.last_metric)
    return EventStream(_Metrics(context, id, trial, type, after if begun is None else begun), context.stopping)


async def _begun(context: ApiContext, id: str, request: Request, greatest: Callable[[Connection], int]) -> int | None:
    """The `Last-Event-ID` from which a stream continues.

    None without one, or if it is too great, as from an earlier experiment with the same id.
    """
    last = last_event_id(request)
    return None if last is None or last > await context.commands.read(id, greatest) else last


class _List:
    """The list of experiments as a subject. A closed one is read only if its index entry changes."""

    def __init__(self, context: ApiContext) -> None:
        self._context = context
        self.watch = context.commands.changes.watch
        self._entries: dict[str, Entry] = {}
        self._sent: dict[str, str] = {}

    async def read(self) -> Part:
        entries = {entry.id: entry for entry in await self._context.commands.entries()}
        changed = [event("removed", Removed(id=id).json_text()) for id in self._sent if id not in entries]
        self._sent = {id: text for id, text in self._sent.items() if id in entries}
        for id, entry in entries.items():
            if entry.is_open or entry != self._entries.get(id):
                text = (await description.summarize(self._context, entry)).json_text()
                if text != self._sent.get(id):
                    self._sent[id] = text
                    changed.append(event("experiment", text))
        self._entries = entries
        return Part(text="".join(changed), is_last=False)


class _OfExperiment:
    def __init__(self, context: ApiContext, id: str) -> None:
        self._context = context
        self._id = id

    def watch(self) -> AbstractContextManager[Event]:
        return self._context.commands.watch(self._id)

    @property
    def _is_over(self) -> bool:
        """Whether the experiment is closed. Call this before reading its changes."""
        return self._context.commands.at_work(self._id) is None


class _State(_OfExperiment):
    async def read(self) -> Part:
        is_over = self._is_over
        state = await description.state(self._context, self._id)
        return Part(text=event("state", state.json_text()), is_last=is_over or state.status.is_closed)


class _Trials(_OfExperiment):
    def __init__(self, context: ApiContext, id: str, ended: int) -> None:
        super().__init__(context, id)
        #: How many ends of trials were sent.
        self._ended = ended
        #: Trials that have not ended, id → as last sent.
        self._open: dict[str, str] = {}

    async def read(self) -> Part:
        is_over = self._is_over
        found = await self._context.commands.read(self._id, lambda c: answers.trials_since(c, self._ended))
        changed = [text for id, text, _ in found if text != self._open.get(id)]
        self._open = {id: text for id, text, end in found if end is None}
        self._ended = max([self._ended, *(end for *_, end in found if end is not None)])
        return Part(text="".join(event("trial", text, self._ended) for text in changed), is_last=is_over)


class _Metrics(_OfExperiment):
    def __init__(self, context: ApiContext, id: str, trial: str | None, type: str | None, after: int) -> None:
        super().__init__(context, id)
        self._trial = trial
        self._type = type
        self._after = after

    async def read(self) -> Part:
        is_over, after = self._is_over, self._after
        found = await self._context.commands.read(
            self._id, lambda c: answers.metrics_since(c, self._trial, self._type, after, _PAGE)
        )
        self._after = max([after, *(id for id, _ in found)])
        has_more = len(found) == _PAGE
        text = "".join(event("metric", line, id) for id, line in found)
        return Part(text=text, is_last=is_over and not has_more, has_more=has_more)
