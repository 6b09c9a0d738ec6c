"""Ids in paths. What cannot be an id is as unknown as an id that nobody has, and touches neither store nor files."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends
from fastapi import Path as PathParameter

from nni_manager.api.context import Context
from nni_manager.domain.errors import NotFound
from nni_manager.domain.ids import EXPERIMENT_ID, TRIAL_ID


async def _experiment_id(
    id: Annotated[str, PathParameter(description="Id of the experiment.", examples=["k3v9x0qa"])], context: Context
) -> str:
    """Raises NotFound unless there is one."""
    if EXPERIMENT_ID.fullmatch(id) is None:
        raise NotFound(f"{id!r} is no experiment id; `nnictl experiment list` shows all")
    if context.service.at_work(id) is None:
        await context.service.entry(id)
    return id


async def _trial_id(
    trial_id: Annotated[str, PathParameter(alias="trialId", description="Id of the trial.", examples=["a1b2c"])],
) -> str:
    """Raises NotFound for what cannot be one; whether there is such a trial, the store says."""
    if TRIAL_ID.fullmatch(trial_id) is None:
        raise NotFound(f"{trial_id!r} is no trial id; the experiment's trials list theirs")
    return trial_id


ExperimentId = Annotated[str, Depends(_experiment_id)]
TrialId = Annotated[str, Depends(_trial_id)]
