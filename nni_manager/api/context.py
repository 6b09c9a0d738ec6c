"""The objects that the routes use. `app` creates one context; routes get it as `Context`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, cast

from fastapi import Depends, Request
from fastapi import Path as PathParameter

from nni_manager.analysis.service import Analysis
from nni_manager.api.nni.placeholder_process import PlaceholderProcesses
from nni_manager.config.settings import own_environment
from nni_manager.domain.clock import Clock, LoopLag, now_ms
from nni_manager.domain.errors import NotFound
from nni_manager.domain.ids import EXPERIMENT_ID, TRIAL_ID
from nni_manager.scheduler.experiments.commands import ExperimentCommands


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiContext:
    """The parts of the daemon that the API uses."""

    commands: ExperimentCommands
    version: str
    data_directory: Path
    started_ms: int
    #: The open listeners, ``{"kind", "address"}`` each.
    listeners: Callable[[], list[dict[str, Any]]]
    #: Starts the daemon's shutdown and returns at once; True: stop its experiments first.
    stop_daemon: Callable[[bool], None]
    #: Set when the daemon ends; ends streams.
    stopping: asyncio.Event
    #: Processes that represent experiments in NNI's tools.
    placeholders: PlaceholderProcesses
    #: Answers queries about trials, in a separate process.
    analysis: Analysis
    #: Experiment id → its report as HTML; raises NotFound, StoreError, AnalysisUnavailable.
    report: Callable[[str], Awaitable[bytes]]
    #: True: the daemon ends with its last open experiment.
    ends_by_itself: bool = False
    clock: Clock = now_ms
    #: Measured by the listeners' tick.
    loop_lag: LoopLag = field(default_factory=LoopLag)
    #: Held while a large text is parsed: one at a time, because parsing slows the rest of the daemon.
    large_texts: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(1))
    #: Default environment of experiments.
    environment: Mapping[str, str] = field(default_factory=own_environment, repr=False)


async def _context(request: Request) -> ApiContext:
    return cast(ApiContext, request.app.state.context)


Context = Annotated[ApiContext, Depends(_context)]


async def _experiment_id(
    id: Annotated[str, PathParameter(description="Id of the experiment.", examples=["k3v9x0qa"])], context: Context
) -> str:
    """The experiment's id in the path. Raises NotFound unless the experiment exists."""
    if EXPERIMENT_ID.fullmatch(id) is None:
        raise NotFound(f"{id!r} is not an experiment id; `nnictl experiment list` shows all")
    if context.commands.at_work(id) is None:
        await context.commands.entry(id)
    return id


async def _trial_id(
    trial_id: Annotated[str, PathParameter(alias="trialId", description="Id of the trial.", examples=["a1b2c"])],
) -> str:
    """The trial's id in the path. Raises NotFound for a malformed id; the store checks whether it exists."""
    if TRIAL_ID.fullmatch(trial_id) is None:
        raise NotFound(f"{trial_id!r} is not a trial id; `nnictl trial ls` shows all")
    return trial_id


ExperimentId = Annotated[str, Depends(_experiment_id)]
TrialId = Annotated[str, Depends(_trial_id)]
