"""What happens to an experiment, as a stream: its state at once, and again after every change."""

from __future__ import annotations

from asyncio import Event
from collections.abc import Iterator
from contextlib import contextmanager

from fastapi import APIRouter

from nni_manager.api import experiment_description as description
from nni_manager.api.context import ApiContext, Context
from nni_manager.api.errors import documented
from nni_manager.api.event_stream import EventStream
from nni_manager.api.identifiers import ExperimentId

router = APIRouter(prefix="/api/v1/experiments/{id}/events", tags=["experiments"])

_ANSWER = {
    200: {
        "description": "Server-sent events called `state`, at most five a second. The data of each is the JSON of an "
        "`Experiment` without its `config`. A comment comes every 15 seconds of silence.",
        "content": {"text/event-stream": {"schema": {"type": "string", "description": "Server-sent events."}}},
    },
    **documented(404, 503),
}


@router.get(
    "",
    operation_id="followExperiment",
    summary="Follow an experiment",
    response_class=EventStream,
    status_code=200,
    responses=_ANSWER,
)
async def follow(id: ExperimentId, context: Context) -> EventStream:
    """Ends after the last state when the experiment is closed, and when the daemon ends."""
    await description.state(context, id)  # refusals are answers of their own, not events
    return EventStream(_Experiment(context, id), context.stopping)


class _Experiment:
    """What `EventStream` follows."""

    def __init__(self, context: ApiContext, id: str) -> None:
        self._context = context
        self._id = id

    @contextmanager
    def watch(self) -> Iterator[Event]:
        """An event that is set by every change; never, for one that nobody works on."""
        experiment = self._context.service.at_work(self._id)
        if experiment is None:
            yield Event()
            return
        with experiment.changes.watch() as news:
            yield news

    async def read(self) -> tuple[str, bool]:
        """Its state as JSON, and whether there will be no other."""
        is_over = self._context.service.at_work(self._id) is None
        state = await description.state(self._context, self._id)
        return state.json_text(), is_over or state.status.is_closed
