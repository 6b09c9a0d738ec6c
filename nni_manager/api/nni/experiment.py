"""The experiment's routes: its profile, changes to it, its end, and imported results."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from nni_manager.api.context import ApiContext
from nni_manager.api.nni.addressed import (
    json_text,
    listed,
    nothing,
    read_json,
    require_writable,
)
from nni_manager.config.secrets import mask
from nni_manager.domain.errors import Conflict, InvalidInput
from nni_manager.domain.experiment import ExperimentStatus, StoredExperiment
from nni_manager.domain.text import require_finite
from nni_manager.scheduler.experiments.open_experiment import OpenExperiment
from nni_manager.store.experiment import experiments
from nni_manager.store.index import overview
from nni_manager.store.nni import nni_answers

log = logging.getLogger(__name__)

#: `update_type` of a change → the field of `params` that it changes.
_FIELDS: Mapping[str, str] = {
    "TRIAL_CONCURRENCY": "trialConcurrency",
    "MAX_EXEC_DURATION": "maxExperimentDuration",
    "SEARCH_SPACE": "searchSpace",
    "MAX_TRIAL_NUM": "maxTrialNumber",
}
#: Fields that identify a posted config as the experiment's.
_OWN = ("trialCommand", "searchSpace")
_ENDING = (ExperimentStatus.STOPPING, ExperimentStatus.STOPPED)


async def show(request: Request, context: ApiContext, id_: str) -> Response:
    """The profile; `params` without its secrets."""
    row = await context.commands.read(id_, experiments.load)
    profile = _profile(row, str((await context.commands.folder(id_)).path), context)
    return json_text(json.dumps(profile))


def _profile(row: StoredExperiment, path: str, context: ApiContext) -> dict[str, Any]:
    exec_ms = overview.exec_ms(row, context.commands.live(row.id), context.clock())
    profile = {
        "params": mask(json.loads(row.config)),
        "id": row.id,
        "execDuration": exec_ms // 1000,
        "logDir": path,
        "startTime": row.created_ms,
        "nextSequenceId": row.next_sequence_id,
        "revision": row.revision,
    }
    return profile if row.ended_ms is None else {**profile, "endTime": row.ended_ms}


async def start(request: Request, context: ApiContext, id_: str) -> Response:
    """The id of the experiment. NNI's launchers send this request, but the experiment runs from its creation."""
    await require_writable(context, id_)
    given = await read_json(request) if await request.body() else {}
    row = await context.commands.read(id_, experiments.load)
    _require_own(row, given)
    if context.commands.at_work(id_) is None:
        raise Conflict(f"experiment {id_} is stopped; `nnictl resume {id_}` opens it")
    return JSONResponse({"experiment_id": id_})


def _require_own(row: StoredExperiment, given: object) -> None:
    if not isinstance(given, dict):
        raise InvalidInput("the body must be a config: a JSON object")
    config = json.loads(row.config)
    shown = mask(config)  # as in the profile
    if any(name in given and given[name] not in (config.get(name), shown.get(name)) for name in _OWN):
        raise Conflict(
            f"this address serves experiment {row.id}, which has begun, but the config is another experiment's;"
            " create that one with `nnictl create`"
        )


async def change(request: Request, context: ApiContext, id_: str) -> Response:
    """Change the field of the sent profile that `update_type` names."""
    await require_writable(context, id_)
    kind = request.query_params.get("update_type", "")
    if kind not in _FIELDS:
        raise InvalidInput(f"update_type: must be one of {', '.join(_FIELDS)}")
    name = _FIELDS[kind]
    await context.commands.change(id_, {name: _field(await read_json(request), name)})
    return nothing()


def _field(profile: object, name: str) -> object:
    params = profile.get("params") if isinstance(profile, dict) else None
    if not isinstance(params, dict) or name not in params:
        raise InvalidInput(f"params.{name}: is missing; send the whole profile with the new value")
    require_finite(f"params.{name}", params[name])
    return params[name]


async def stop(request: Request, context: ApiContext, id_: str) -> Response:
    """Answer as soon as the stop is stored; then stop the experiment and close its endpoint."""
    experiment = context.commands.at_work(id_)
    stopping = asyncio.create_task(context.commands.stop(id_), name=f"stop {id_}")
    _stops.add(stopping)
    stopping.add_done_callback(_over)
    if experiment is not None:
        await _wait_until_stored(experiment, stopping)
    if experiment is None or stopping.done():
        await stopping  # raises if the stop was refused
    return nothing()


async def _wait_until_stored(experiment: OpenExperiment, stopping: asyncio.Task[None]) -> None:
    with experiment.changes.watch() as news:
        stopping.add_done_callback(lambda _: news.set())
        while not stopping.done() and (await experiment.database.read(experiments.load)).status not in _ENDING:
            await news.wait()
            news.clear()


def _over(stopping: asyncio.Task[None]) -> None:
    _stops.discard(stopping)
    if not stopping.cancelled() and (error := stopping.exception()) is not None:
        log.error("stopping an experiment failed: %s", error)


#: Keeps references to tasks, because the event loop has only weak ones.
_stops: set[asyncio.Task[None]] = set()


async def import_data(request: Request, context: ApiContext, id_: str) -> Response:
    """Import results for the tuner."""
    await require_writable(context, id_)
    await context.commands.import_data(id_, _results(await read_json(request)))
    return nothing()


def _results(given: object) -> list[dict[str, Any]]:
    if not isinstance(given, list):
        raise InvalidInput('the body must be a list of {"parameter": {…}, "value": …}')
    return [_result(number, entry) for number, entry in enumerate(given)]


def _result(number: int, entry: object) -> dict[str, Any]:
    """An imported result with all its keys; exports also have ids, which NNI keeps."""
    if not isinstance(entry, dict) or not isinstance(entry.get("parameter"), dict) or "value" not in entry:
        raise InvalidInput(f'[{number}]: must be {{"parameter": {{…}}, "value": …}}')
    return entry


async def imported_data(request: Request, context: ApiContext, id_: str) -> Response:
    """The JSON text of each import."""
    return listed(await context.commands.read(id_, nni_answers.imports))


async def set_cluster_metadata(request: Request, context: ApiContext, id_: str) -> Response:
    """Ignore the platform from NNI's oldest clients: the config has it."""
    await context.commands.entry(id_)
    return nothing()
