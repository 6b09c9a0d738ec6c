"""Server-sent events, each as an object: its lines `event`, `data` and `id`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from nni_manager.api.schemas.daemon import Wire
from nni_manager.api.schemas.experiments import ExperimentState, ExperimentSummary
from nni_manager.api.schemas.trials import Metric, Trial

_DATA = "JSON on one line."


class Removed(Wire):
    """An experiment that was deleted."""

    id: str = Field(description="Id it had.")


class ListEvent(Wire):
    """An event of the list of experiments."""

    event: Literal["experiment", "removed"] = Field(description="What `data` is.")
    data: ExperimentSummary | Removed = Field(description=_DATA)


class StateEvent(Wire):
    """An event of one experiment."""

    event: Literal["state"] = Field(description="Always `state`.")
    data: ExperimentState = Field(description=_DATA)


class TrialEvent(Wire):
    """An event of an experiment's trials."""

    event: Literal["trial"] = Field(description="Always `trial`.")
    data: Trial = Field(description=_DATA)
    id: int = Field(description="How many trials had ended. Shown again as `Last-Event-ID`, the stream goes on there.")


class MetricEvent(Wire):
    """An event of an experiment's results."""

    event: Literal["metric"] = Field(description="Always `metric`.")
    data: Metric = Field(description=_DATA)
    id: int = Field(description="The result's id. Shown again as `Last-Event-ID`, the stream goes on there.")
