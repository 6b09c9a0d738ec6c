"""Reads NNI's tables: a log of events and metrics becomes records of trials. `nni_folder` writes them.

Two bugs of NNI are corrected. It assigns parameters to trials in request order, so a trial may have run with another's
parameters: its metrics have the right id. And it repeats sequence numbers after a resume.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from nni_manager.domain.ids import EXPERIMENT_ID
from nni_manager.domain.metrics import MetricType, default_number
from nni_manager.domain.reason import Reason
from nni_manager.domain.space.parameters import Parameters, ParameterSource
from nni_manager.domain.trial_status import TrialStatus
from nni_manager.store import stored_config


@dataclass(frozen=True, slots=True, kw_only=True)
class NniMetric:
    #: NNI's row id, which is the stored order over all trials.
    id: int
    #: Id of the trial's parameters, as text; None: a customised trial.
    parameter_id: str | None
    type: MetricType
    sequence: int
    stored_ms: int
    #: JSON of the value.
    data: str
    value: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NniTrial:
    id: str
    sequence_id: int
    status: TrialStatus
    reason: Reason
    message: str
    parameters: Parameters
    created_ms: int
    started_ms: int | None
    ended_ms: int
    metrics: tuple[NniMetric, ...] = ()

    @property
    def final(self) -> NniMetric | None:
        """The first final result."""
        return next((metric for metric in self.metrics if metric.type is MetricType.FINAL), None)

    @property
    def last_intermediate(self) -> NniMetric | None:
        return next((metric for metric in reversed(self.metrics) if metric.type is MetricType.PERIODICAL), None)

    @property
    def intermediates(self) -> int:
        return sum(metric.type is MetricType.PERIODICAL for metric in self.metrics)


@dataclass(frozen=True, slots=True, kw_only=True)
class NniExperiment:
    id: str
    #: Canonical config, JSON; secrets included, never log it.
    params: str = field(repr=False)
    created_ms: int
    ended_ms: int
    exec_ms: int
    #: In end order.
    trials: tuple[NniTrial, ...]
    #: (ms, JSON list of {parameter, value}).
    imports: tuple[tuple[int, str], ...]
    #: Rows of ``ExperimentProfile``, unchanged.
    profiles: tuple[tuple[object, ...], ...] = field(repr=False)

    @property
    def next_sequence_id(self) -> int:
        return max((trial.sequence_id for trial in self.trials), default=-1) + 1

    @property
    def next_parameter_id(self) -> int:
        ids = (trial.parameters.parameter_id for trial in self.trials)
        return max((id_ for id_ in ids if id_ is not None), default=-1) + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class NniHead:
    """The list entry of an experiment."""

    id: str
    name: str | None
    #: Platform names, joined by commas.
    platform: str
    created_ms: int
    #: None: unknown, perhaps because NNI runs it.
    ended_ms: int | None


#: Status → reason, as far as NNI stores it.
_REASONS = {
    TrialStatus.SUCCEEDED: Reason.NONE,
    TrialStatus.FAILED: Reason.USER_CODE,
    TrialStatus.USER_CANCELED: Reason.USER_REQUEST,
    TrialStatus.SYS_CANCELED: Reason.LOST,
    TrialStatus.EARLY_STOPPED: Reason.ASSESSOR,
}
#: Statuses that imply that the trial ran.
_RUN = (TrialStatus.SUCCEEDED, TrialStatus.FAILED, TrialStatus.EARLY_STOPPED)
#: Events without a status of the same name → status.
_MEANINGS = {"USER_TO_CANCEL": TrialStatus.USER_CANCELED, "ADD_RESUMED": TrialStatus.WAITING}
_UNFINISHED = "running when NNI's manager ended; resume starts it again"


def read_head(connection: sqlite3.Connection) -> NniHead | None:
    """The list entry, without reading trials; None: no experiment was saved. Raises sqlite3.DatabaseError."""
    row = connection.execute(
        "SELECT id, params, startTime, endTime FROM ExperimentProfile ORDER BY revision DESC LIMIT 1"
    ).fetchone()
    if row is None:
        return None
    id_, params, created_ms, ended_ms = row
    if not _is_id(id_):
        return None
    config = json.loads(params)
    return NniHead(
        id=id_,
        name=config.get("experimentName"),
        platform=stored_config.platform(config),
        created_ms=created_ms,
        ended_ms=ended_ms,
    )


def read(connection: sqlite3.Connection) -> NniExperiment | None:
    """The experiment in NNI's database; None when none was ever saved. Raises sqlite3.DatabaseError."""
    profiles = connection.execute(
        "SELECT params, id, execDuration, startTime, endTime, logDir, nextSequenceId, revision"
        " FROM ExperimentProfile ORDER BY revision"
    ).fetchall()
    if not profiles:
        return None
    params, id_, exec_s, created_ms, ended_ms, *_ = profiles[-1]
    if not _is_id(id_):
        return None
    last_ms = max(ended_ms or 0, last_moment(connection))
    metrics = _metrics(connection)
    trials = [replace(trial, metrics=metrics.get(trial.id, ())) for trial in _trials(connection, last_ms)]
    in_order = sorted(_numbered(_with_their_parameters(trials)), key=lambda trial: (trial.ended_ms, trial.sequence_id))
    return NniExperiment(
        id=id_,
        params=params,
        created_ms=created_ms,
        ended_ms=last_ms,
        exec_ms=(exec_s or 0) * 1000,
        trials=tuple(in_order),
        imports=tuple(connection.execute("SELECT timestamp, data FROM TrialJobEvent WHERE event = 'IMPORT_DATA'")),
        profiles=tuple(profiles),
    )


def _is_id(id: object) -> bool:
    """Whether an id is a valid folder name; the database may come from anywhere."""
    return isinstance(id, str) and EXPERIMENT_ID.fullmatch(id) is not None


def last_moment(connection: sqlite3.Connection) -> int:
    """The latest time that NNI stored, in milliseconds. Raises sqlite3.DatabaseError."""
    columns = (("startTime", "ExperimentProfile"), ("timestamp", "TrialJobEvent"), ("timestamp", "MetricData"))
    queries = (f"SELECT coalesce(max({column}), 0) FROM {table}" for column, table in columns)
    return max(int(connection.execute(query).fetchone()[0]) for query in queries)


# Trials


@dataclass(slots=True, kw_only=True)
class _TrialHistory:
    """A trial, built up event by event."""

    created_ms: int
    sequence_id: int = 0
    status: TrialStatus = TrialStatus.WAITING
    record: str = ""
    message: str = ""
    log_path: str = ""
    started_ms: int | None = None
    ended_ms: int | None = None

    def apply(self, moment_ms: int, status: TrialStatus, message: str | None) -> None:
        self.status = status
        self.message = message or ""
        self.ended_ms = moment_ms if status.is_final else None
        if status is TrialStatus.RUNNING:
            self.started_ms = moment_ms


def _trials(connection: sqlite3.Connection, last_ms: int) -> list[NniTrial]:
    """The trials in order of their first events. `last_ms`: end time for trials that had not ended."""
    histories: dict[str, _TrialHistory] = {}
    events = connection.execute(
        "SELECT timestamp, trialJobId, event, data, sequenceId, message, logPath FROM TrialJobEvent"
        " WHERE coalesce(trialJobId, '') <> '' ORDER BY rowid"
    )
    for moment_ms, id_, event, data, sequence_id, message, log_path in events:
        if not _is_id(id_):
            continue
        history = histories.setdefault(id_, _TrialHistory(created_ms=moment_ms))
        history.record = history.record or data or ""
        history.log_path = log_path or history.log_path
        history.sequence_id = history.sequence_id if sequence_id is None else sequence_id
        status = _MEANINGS.get(event) or (TrialStatus(event) if event in TrialStatus.__members__ else None)
        if status is not None:  # others, such as ADD_HYPERPARAMETER, change none
            history.apply(moment_ms, status, message)
    return [_trial(id_, history, last_ms) for id_, history in histories.items()]


def _trial(id_: str, history: _TrialHistory, last_ms: int) -> NniTrial:
    status, reason, message = history.status, Reason.EXPERIMENT_STOPPED, _UNFINISHED
    if status.is_final:
        reason, message = _REASONS[status], history.message
    else:
        status = TrialStatus.USER_CANCELED
    # NNI 2.10 stores no start of trials shorter than its polling interval
    has_run = history.status in _RUN and history.log_path
    return NniTrial(
        id=id_,
        sequence_id=history.sequence_id,
        status=status,
        reason=reason,
        message=message,
        parameters=_parameters(history.record),
        created_ms=history.created_ms,
        started_ms=history.created_ms if history.started_ms is None and has_run else history.started_ms,
        ended_ms=history.ended_ms or last_ms,
    )


def _parameters(record: str) -> Parameters:
    try:
        return Parameters.from_record(record)
    except (ValueError, KeyError, TypeError):
        return Parameters(parameter_id=None, source=ParameterSource.CUSTOMIZED, values={})


def _with_their_parameters(trials: list[NniTrial]) -> Iterable[NniTrial]:
    """The trials with the parameters that their metrics name, if every name is known and unique."""
    by_id = {str(trial.parameters.parameter_id): trial.parameters for trial in trials}
    named = {trial.id: _named(trial) for trial in trials}
    counts = Counter(named.values())
    is_sure = all(count == 1 for count in counts.values()) and set(counts) <= set(by_id)
    return (replace(trial, parameters=by_id[named[trial.id]]) for trial in trials) if is_sure else trials


def _named(trial: NniTrial) -> str:
    """The parameter id that its metrics name; without metrics, its own."""
    ids = {metric.parameter_id for metric in trial.metrics if metric.parameter_id is not None}
    return ids.pop() if len(ids) == 1 else str(trial.parameters.parameter_id)


def _numbered(trials: Iterable[NniTrial]) -> list[NniTrial]:
    """Renumbers trials with a repeated sequence id, after all others."""
    taken: set[int] = set()
    numbered = list(trials)
    following = max((trial.sequence_id for trial in numbered), default=-1) + 1
    for place, trial in enumerate(numbered):
        if trial.sequence_id in taken:
            numbered[place] = replace(trial, sequence_id=following)
            following += 1
        taken.add(numbered[place].sequence_id)
    return numbered


# Metrics


def _metrics(connection: sqlite3.Connection) -> Mapping[str, tuple[NniMetric, ...]]:
    """The results by trial, in stored order. Data that is not JSON is left out, as NNI does."""
    found: dict[str, list[NniMetric]] = {}
    rows = connection.execute(
        "SELECT rowid, trialJobId, parameterId, type, sequence, timestamp, data FROM MetricData"
        " WHERE type IN ('PERIODICAL', 'FINAL') ORDER BY rowid"
    )
    for id_, trial_id, parameter_id, type_, sequence, moment_ms, text in rows:
        try:
            data = json.loads(text)
            value = default_number(json.loads(data))
        except (ValueError, TypeError, RecursionError):
            continue
        metric = NniMetric(
            id=id_,
            parameter_id=parameter_id,
            type=MetricType(type_),
            sequence=sequence,
            stored_ms=moment_ms,
            data=data,
            value=value,
        )
        found.setdefault(trial_id, []).append(metric)
    return {trial_id: tuple(metrics) for trial_id, metrics in found.items()}
