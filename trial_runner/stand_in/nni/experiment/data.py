"""What an experiment has of trials and results, from NNI's records of them."""

from __future__ import annotations

import json

TYPE_CHECKING = False  # `typing` is slow to import and only checkers need it
if TYPE_CHECKING:
    from typing import Any


class _Record:
    """Fields by name; equal when all fields are."""

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.__dict__ == self.__dict__

    __hash__ = None  # type: ignore[assignment]  # it can change

    def __repr__(self) -> str:
        fields = ", ".join("{}={!r}".format(name, value) for name, value in self.__dict__.items())
        return "{}({})".format(type(self).__name__, fields)


class TrialResult(_Record):
    """A trial that succeeded: `parameter`, `value`, `trialJobId`."""

    def __init__(self, parameter: Any, value: str, trialJobId: str) -> None:
        super().__init__(parameter=parameter, value=json.loads(value), trialJobId=trialJobId)


class TrialMetricData(_Record):
    """A result: `timestamp`, `trialJobId`, `parameterId`, `type`, `sequence`, `data`."""

    def __init__(self, data: str, **fields: Any) -> None:
        super().__init__(data=json.loads(json.loads(data)), **fields)


class TrialHyperParameters(_Record):
    """`parameter_id`, `parameter_source`, `parameters`, `parameter_index`."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(**{"placement_constraint": None, "version_info": None, **fields})


class TrialJob(_Record):
    """A trial: `trialJobId`, `status`, `hyperParameters`, `logPath`, `startTime`, `endTime`, `finalMetricData`,
    `stderrPath`, `sequenceId`, `message`."""

    def __init__(self, **fields: Any) -> None:
        known = {"startTime": None, "logPath": "", "endTime": -1, "stderrPath": "", "message": "--"}
        names = (*known, "trialJobId", "status", "sequenceId")
        parameters = [TrialHyperParameters(**json.loads(one)) for one in fields.get("hyperParameters", ())]
        results = [TrialMetricData(**one) for one in fields.get("finalMetricData", ())]
        known.update((name, fields[name]) for name in names if name in fields)
        super().__init__(**known, hyperParameters=parameters, finalMetricData=results)
