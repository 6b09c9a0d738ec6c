"""The API's description of an experiment: its state, index entry, and config with masked secrets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nni_manager.api.context import ApiContext
from nni_manager.api.schemas import experiments as schema
from nni_manager.config import credentials, experiment_file
from nni_manager.config.secrets import mask
from nni_manager.domain.endpoint import Endpoint, EndpointWish, parse_prefix
from nni_manager.domain.errors import InvalidInput, NotFound, StoreError
from nni_manager.domain.experiment import ExperimentStatus
from nni_manager.scheduler import no_more_trials
from nni_manager.store.index import list_summary, overview
from nni_manager.store.index.best_results import ParetoSet
from nni_manager.store.index.index import Entry
from nni_manager.store.index.list_summary import ListSummary
from nni_manager.store.index.overview import Overview


def endpoint_wish(new: schema.NewEndpoint | None) -> EndpointWish | None:
    """The requested endpoint, or None. Raises InvalidInput."""
    if new is None:
        return None
    return EndpointWish(port=new.port, prefix=parse_prefix(new.url_prefix), first=new.first_port)


def describe_endpoint(context: ApiContext, endpoint: Endpoint | None) -> schema.ExperimentEndpoint | None:
    if endpoint is None:
        return None
    return schema.ExperimentEndpoint(
        port=endpoint.port, url_prefix=endpoint.prefix, url=context.commands.endpoint_url(endpoint)
    )


def working_directory(text: str | None) -> Path | None:
    """The working directory of a request, or None. Raises InvalidInput for an invalid path."""
    if text is not None and "\0" in text:
        raise InvalidInput("workingDirectory: contains a null byte; name the parent of the experiment's folder")
    return Path(text) if text is not None else None


async def describe(context: ApiContext, id: str) -> schema.Experiment:
    """The whole description of an experiment, including its config. Raises NotFound or StoreError."""
    found = await _read(context, id)
    experiment = context.commands.at_work(id)
    return schema.Experiment(
        **_state(found, await _place(context, id)),
        config=mask(found.config),
        references=_references(found.config),
        variables=None if experiment is None else experiment.variables,
    )


def _references(config: Mapping[str, Any]) -> list[str]:
    """The references to secrets in a config; empty for NNI's configs, whose secret fields are unknown."""
    try:
        return list(credentials.outside(experiment_file.from_canonical(config)))
    except InvalidInput:
        return []


async def state(context: ApiContext, id: str) -> schema.ExperimentState:
    """Everything except the config."""
    return schema.ExperimentState(**_state(await _read(context, id), await _place(context, id)))


async def summarize(context: ApiContext, entry: Entry) -> schema.ExperimentSummary:
    """The summary of an experiment, from the index or, if open, from its database.

    Never raises, so that lists always work.
    """
    live = context.commands.live(entry.id)
    sentences = (live.derived_hold.sentence if live.derived_hold else "", live.problem)
    errors = [sentence for sentence in sentences if sentence] or list(_missing(context, entry))
    fields = {
        "id": entry.id,
        "name": entry.name,
        "platform": entry.platform,
        "status": entry.status,
        "createdMs": entry.created_ms,
        "endedMs": entry.ended_ms,
        "logPath": str(entry.folder.path),
        "endpoint": describe_endpoint(context, entry.endpoint),
        **entry.labels.as_json(),
        "hold": live.derived_hold,
        "errors": errors,
        "waitsFor": None,
    } | _glance(list_summary.parse(entry.results))
    if context.commands.at_work(entry.id) is not None:
        try:
            found = await _read(context, entry.id)
            fields |= _condition(found) | _glance(found.summary)
        except StoreError as error:
            fields |= {"errors": [str(error)]}
    return schema.ExperimentSummary(**fields)


def _missing(context: ApiContext, entry: Entry) -> Iterator[str]:
    """Why a listed experiment is unreadable or was unknown, or that its folder or database is gone.

    NNI's `nnictl` may have removed it. Checked only on the index's own disk: others may be unmounted or slow.
    """
    path = entry.folder.path
    if entry.trouble:
        yield entry.trouble
    elif path.parent == context.data_directory and not _has_content(path / "db" / "nni.sqlite"):
        try:
            entry.folder.require_database()
        except NotFound as error:
            yield f"{error}; `nnictl experiment delete {entry.id}` removes it from the list"
        except StoreError as error:
            yield str(error)


def _has_content(database: Path) -> bool:
    """Whether the file is not empty, with a single system call, because lists ask for each closed experiment."""
    try:
        return database.stat().st_size > 0
    except OSError:
        return False


async def _read(context: ApiContext, id: str) -> Overview:
    live = context.commands.live(id)
    return await context.commands.read(id, lambda c: overview.load(c, live, context.clock()))


async def _place(context: ApiContext, id: str) -> dict[str, Any]:
    """Fields from the index instead of the database: folder, endpoint, labels, and the status VIEWED."""
    entry = await context.commands.entry(id)
    own = {"endpoint": describe_endpoint(context, entry.endpoint), **entry.labels.as_json()}
    experiment = context.commands.at_work(id)
    if experiment is not None:
        return {"logPath": str(experiment.folder.path), **own}
    closed = (
        {"status": entry.status} if entry.status.is_closed else {}
    )  # the experiment's database may not have the status yet
    ended = {"endedMs": entry.ended_ms} if entry.status is ExperimentStatus.STOPPED and entry.is_open else {}
    return {"logPath": str(entry.folder.path), **own, **closed, **ended}


def _state(found: Overview, place: dict[str, Any]) -> dict[str, Any]:
    row, config = found.row, found.config
    return (
        _condition(found)
        | _glance(found.summary)
        | place
        | {
            "id": row.id,
            "name": config.get("experimentName"),
            "platform": found.platform,
            "createdMs": row.created_ms,
            "execDurationMs": found.exec_ms,
            "trialConcurrency": config["trialConcurrency"],
            "maxExperimentDuration": config.get("maxExperimentDuration"),
            "maxTrialDuration": config.get("maxTrialDuration"),
            "noMoreTrials": no_more_trials.sentence(found),
            "revision": row.revision,
            "endedAs": row.ended_as or None,
            "services": found.services,
            "warnings": found.warnings,
        }
    )


def _condition(found: Overview) -> dict[str, Any]:
    """Fields that change while the experiment is open."""
    row = found.row
    return {
        "status": row.status,
        "endedMs": row.ended_ms,
        "hold": found.hold,
        "errors": list(found.errors),
        "waitsFor": found.waits_for,
    }


_GLANCE = (
    *("counts", "trialsMade", "maxTrialNumber", "optimizeMode", "directionNote", "best", "objectives", "paretoSet"),
    *("paretoSize", "commonFailure", "endedAs"),
)


def _glance(found: ListSummary | None) -> dict[str, Any]:
    if found is None:
        return dict.fromkeys(_GLANCE)
    pareto = found.pareto_set or ParetoSet(size=0, trials=())
    return {
        "counts": found.counts,
        "trialsMade": found.trials_made,
        "maxTrialNumber": found.max_trial_number,
        "optimizeMode": found.optimize_mode,
        "directionNote": found.direction_note,
        "best": found.best,
        "objectives": found.objectives,
        "paretoSet": pareto.trials,
        "paretoSize": pareto.size,
        "commonFailure": found.common_failure,
        "endedAs": found.ended_as or None,
    }
