"""Records of an experiment that NNI made: read by `nni_history`, written by `nni_folder`."""

from __future__ import annotations

from dataclasses import dataclass, field

from nni_manager.domain.metrics import MetricType
from nni_manager.domain.reason import Reason
from nni_manager.domain.space.parameters import Parameters
from nni_manager.domain.trial import TrialStatus


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
    #: Rows of ``ExperimentProfile`` as they are.
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
    #: None: not known, perhaps as NNI runs it.
    ended_ms: int | None
