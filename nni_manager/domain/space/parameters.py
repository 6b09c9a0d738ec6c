"""Parameters: an assignment of values for a trial, and its source."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

_to_json = json.JSONEncoder(separators=(",", ":")).encode


class ParameterSource(StrEnum):
    """The source of a trial's parameters, in NNI's terms."""

    #: The tuner proposed it.
    ALGORITHM = "algorithm"
    #: A person gave it.
    CUSTOMIZED = "customized"
    #: An unfinished trial of an earlier run.
    RESUMED = "resumed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """The parameters of exactly one trial, assigned at its creation."""

    #: The tuner's number; None when a person gave the values.
    parameter_id: int | None
    source: ParameterSource
    #: What the trial receives; usually a mapping of name to value, but a Batch tuner may give anything.
    values: object

    def record(self) -> str:
        """The JSON record with exactly the four keys that trials and NNI's clients read."""
        return _to_json(
            {
                "parameter_id": self.parameter_id,
                "parameter_source": self.source.value,
                "parameters": self.values,
                "parameter_index": 0,
            }
        )

    @staticmethod
    def from_record(text: str) -> Parameters:
        record: Mapping[str, Any] = json.loads(text)
        number = record.get("parameter_id")
        return Parameters(
            parameter_id=number if isinstance(number, int) else None,
            source=ParameterSource(record.get("parameter_source", "algorithm")),
            values=record["parameters"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """Values from the tuner, not yet assigned to a trial."""

    parameter_id: int
    values: object
    #: The trial whose configuration they continue; empty: none.
    continues: str = ""


def text_of(parameters: object) -> str:
    """The same text for equal parameters. Integers and equal floats count as equal, as in JSON of other programs."""
    return json.dumps(_plain(parameters), sort_keys=True)


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
