"""An experiment as the API describes it, from its overview and its entry in the index."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from nni_manager.api import views
from nni_manager.api.context import ApiContext
from nni_manager.api.masking import mask
from nni_manager.api.schemas import experiments as schema
from nni_manager.config import credentials, experiment_file
from nni_manager.domain.errors import InvalidInput, StoreError
from nni_manager.domain.experiment import ExperimentStatus, Hold
from nni_manager.domain.metrics import OptimizeMode
from nni_manager.scheduler import no_more_trials
from nni_manager.store import overview, stored_config
from nni_manager.store.index import Entry
from nni_manager.store.overview import Overview, Service


async def describe(context: ApiContext, id: str) -> schema.Experiment:
    """Everything, config included. Raises NotFound or StoreError."""
    found = await _read(context, id)
    return schema.Experiment(
        **_state(found, await _place(context, id)), config=mask(found.config), references=_references(found.config)
    )


def _references(config: Mapping[str, Any]) -> list[str]:
    """Also of a config that NNI has written, of which nothing is known."""
    try:
        return list(credentials.outside(experiment_file.from_canonical(config)))
    except InvalidInput:
        return []


async def state(context: ApiContext, id: str) -> schema.ExperimentState:
    """Everything but the config."""
    return schema.ExperimentState(**_state(await _read(context, id), await _place(context, id)))


async def summarize(context: ApiContext, entry: Entry) -> schema.ExperimentSummary:
    """From the index; what is at work is asked itself. Never raises: a list must not fail because of one experiment."""
    live = context.service.live(entry.id)
    sentences = (live.derived_hold.sentence if live.derived_hold else "", live.problem)
    errors = [sentence for sentence in sentences if sentence] or list(_missing(context, entry))
    fields = _entry(context, entry) | {"hold": _hold(live.derived_hold), "errors": errors}
    if context.service.at_work(entry.id) is not None:
        try:
            fields |= _condition(await _read(context, entry.id))
        except StoreError as error:
            fields |= {"errors": [str(error)]}
    return schema.ExperimentSummary(**fields)


def _missing(context: ApiContext, entry: Entry) -> Iterator[str]:
    """Of a folder that somebody else removed, NNI's `nnictl` for instance. Only where our index lies is looked: other
    disks may be away, and slow to say so."""
    path = entry.folder.path
    if path.parent == context.data_directory and not path.exists():
        yield f"its folder is gone: {path}; `nnictl experiment delete {entry.id}` takes it off the list"


async def _read(context: ApiContext, id: str) -> Overview:
    live = context.service.live(id)
    return await context.service.read(id, lambda c: overview.load(c, live, context.clock()))


async def _place(context: ApiContext, id: str) -> dict[str, Any]:
    """What the index knows better: where a folder that was moved is now, its view, and that it is open for reading
    only."""
    entry = await context.service.entry(id)
    view = views.describe(context, entry.view)
    experiment = context.service.at_work(id)
    if experiment is not None:
        return {"logPath": str(experiment.folder.path), "view": view}
    closed = {"status": entry.status} if entry.status.is_closed else {}  # its own database may not know it yet
    ended = {"endedMs": entry.ended_ms} if entry.status is ExperimentStatus.STOPPED and entry.is_open else {}
    return {"logPath": str(entry.folder.path), "view": view, **closed, **ended}


def _state(found: Overview, place: dict[str, Any]) -> dict[str, Any]:
    row, config, best = found.row, found.config, found.best
    return _condition(found) | place | {
        "id": row.id, "name": config.get("experimentName"), "platform": found.platform, "createdMs": row.created_ms,
        "execDurationMs": found.exec_ms, "trialConcurrency": config["trialConcurrency"],
        "maxTrialNumber": config.get("maxTrialNumber"), "maxExperimentDuration": config.get("maxExperimentDuration"),
        "maxTrialDuration": config.get("maxTrialDuration"), "counts": found.counts,
        "trialsMade": row.next_sequence_id, "noMoreTrials": no_more_trials.sentence(found),
        "optimizeMode": OptimizeMode.MAXIMIZE if stored_config.maximizes(config) else OptimizeMode.MINIMIZE,
        "best": best and schema.Best(trial_id=best.trial_id, value=best.value, parameters=best.parameters),
        "revision": row.revision, "services": [_service(service) for service in found.services],
        "warnings": [schema.ExperimentWarning(code=one.code, message=one.message) for one in found.warnings],
    }  # fmt: skip


def _service(service: Service) -> schema.TrainingService:
    return schema.TrainingService(
        name=service.name, platform=service.platform, status=service.status, since_ms=service.since_ms,
        sentence=service.sentence, room=service.room, limit=service.limit, open_attempts=service.open_attempts,
    )  # fmt: skip


def _condition(found: Overview) -> dict[str, Any]:
    """What changes while it is at work."""
    row = found.row
    return {"status": row.status, "endedMs": row.ended_ms, "hold": _hold(found.hold), "errors": list(found.errors)}


def _hold(hold: Hold | None) -> schema.Hold | None:
    return None if hold is None else schema.Hold(code=hold.code, sentence=hold.sentence, details=hold.details)


def _entry(context: ApiContext, entry: Entry) -> dict[str, Any]:
    return {
        "id": entry.id, "name": entry.name, "platform": entry.platform, "status": entry.status,
        "createdMs": entry.created_ms, "endedMs": entry.ended_ms, "logPath": str(entry.folder.path),
        "view": views.describe(context, entry.view),
    }  # fmt: skip
