"""Results that trials reported. Built by SQLite (`store.answers`); these models are for the API's description."""

from __future__ import annotations

from pydantic import Field

from nni_manager.api.schemas.wire import Wire
from nni_manager.domain.metrics import MetricType


class Metric(Wire):
    """One reported value."""

    id: int = Field(description="Grows in the order of storing; ask for what comes `after` the last one you have.")
    trial_id: str = Field(description="The trial that reported it.")
    attempt: int = Field(description="Which of its attempts.")
    type: MetricType = Field(description="PERIODICAL: an intermediate result; FINAL: the final one.")
    sequence: int = Field(description="0, 1, …: its place among the attempt's intermediate results; 0 for a final one.")
    stored_ms: int = Field(description="When it was stored, milliseconds since the epoch.")
    result: str = Field(description="JSON text of the value as reported; NaN and Infinity may stand in it.")
    value: float | None = Field(description="Its number: itself, or its entry `default`; null: none, NaN or infinite.")
    outbox: str = Field(description="File below the attempt's folder that it came from.")
    number: int = Field(description="Its 0-based line in that file.")
    epoch: int = Field(
        description="0, 1, …: how often a new container of the attempt had begun its results afresh before. Less than "
        "the attempt's: of a container that is gone."
    )


class MetricList(Wire):
    metrics: list[Metric] = Field(description="In the order they were stored.")
