"""Answers of a manager, decoded and checked: a manager on another machine may send anything.

The checks cover length, depth, the types of known fields, and ids, which commands use in file names. Fields with
users' content, such as parameters, are only decoded.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from nni_manager.domain.errors import NniManagerError
from nni_manager.domain.experiment import ExperimentStatus
from nni_manager.domain.ids import EXPERIMENT_ID
from nni_manager.domain.service import ServiceStatus
from nni_manager.domain.trial_status import TrialStatus

#: Maximum size of an answer, in bytes; downloads of files are read in parts.
MOST_BYTES = 64 * 1024 * 1024
_MOST_MS = 253_402_300_799_000
_MOST_INTEGER = 2**63


class NotAnAnswer(NniManagerError):
    """The answer is not from a manager."""


class Answered(dict[str, Any]):
    """An object of an answer. Access to a missing field raises NotAnAnswer."""

    def __missing__(self, key: str) -> Any:
        raise NotAnAnswer(f"the field {key!r} is missing in the answer")


def decode(body: bytes | str, form: str = "object") -> Any:
    """The JSON of an answer: an ``object``, or ``objects``. Raises NotAnAnswer."""
    try:
        answer = json.loads(body, object_hook=Answered)
    except ValueError:
        raise NotAnAnswer("it is not JSON") from None
    except RecursionError:
        raise NotAnAnswer("it is nested too deeply") from None
    if not _FITS[form](answer):
        raise NotAnAnswer("it is not an object" if form == "object" else "it is not a list of objects")
    _check(answer)
    return answer


def _check(answer: object) -> None:
    left = [answer]
    while left:
        found = left.pop()
        if isinstance(found, list):
            left += found
        elif isinstance(found, dict):
            if isinstance(found.get("id"), int) and "storedMs" not in found:  # only results are numbered
                raise NotAnAnswer("the field 'id' is not id")
            for name, value in found.items():
                if (form := _FORMS.get(name)) is not None and not any(_FITS[one](value) for one in form):
                    raise NotAnAnswer(f"the field {name!r} is not {' or '.join(form)}")
                if name not in _FREE:
                    left.append(value)


def _is_integer(value: object) -> bool:
    return type(value) is int and abs(value) < _MOST_INTEGER


def _is_json(value: object) -> bool:
    try:
        json.loads(value)  # type: ignore[arg-type]  # TypeError
    except (TypeError, ValueError, RecursionError):
        return False
    return isinstance(value, str)


_STATUSES = frozenset((*ExperimentStatus, *TrialStatus, *ServiceStatus, "ok", "stopping"))
_FITS: Mapping[str, Callable[[Any], bool]] = {
    "null": lambda value: value is None,
    "text": lambda value: isinstance(value, str),
    "id": lambda value: isinstance(value, str) and EXPERIMENT_ID.fullmatch(value) is not None,
    "empty": lambda value: value == "",
    "status": lambda value: isinstance(value, str) and value in _STATUSES,
    "JSON": _is_json,
    "integer": _is_integer,
    "moment": lambda value: type(value) is int and 0 <= value <= _MOST_MS,
    "number": lambda value: _is_integer(value) or isinstance(value, float),
    "boolean": lambda value: isinstance(value, bool),
    "counts": lambda value: isinstance(value, dict) and all(map(_is_integer, value.values())),
    "words": lambda value: isinstance(value, dict) and all(isinstance(one, str) for one in value.values()),
    "object": lambda value: isinstance(value, dict),
    "objects": lambda value: isinstance(value, list) and all(isinstance(one, dict) for one in value),
    "texts": lambda value: isinstance(value, list) and all(isinstance(one, str) for one in value),
    "ids": lambda value: isinstance(value, list) and all(map(_FITS["id"], value)),
}


#: Fields with users' content.
_FREE = frozenset("config details parameter parameters value values".split())
#: Names of fields by their types, over all answers.
_GROUPS = {
    "boolean": "archived drained endsByItself isDiffCut isFeasible wasStarted",
    "boolean null": "pareto",
    "counts null": "counts",
    "id": "trialId trialJobId",
    "id empty": "experiment trial",
    "id integer": "id",
    "ids": "stopped",
    "integer": "attempt checkpoints containers database epoch execDurationMs free index intermediates least"
    " logs maskedValues number openAttempts other port sequence sequenceId total trialConcurrency",
    "integer null": "clipped codeState exitCode jobs limit maxTrialNumber memoryBytes notNumbers of parameterId"
    " paretoSize pid processors room seed shown signal step trialsMade variables",
    "integer null text": "maxExperimentDuration maxTrialDuration",
    "integer object text": "code",
    "integer objects": "experiments files line",
    "integer objects texts": "trials",
    "integer text": "revision",
    "JSON": "result",
    "JSON null": "finalResult",
    "status null": "status",
    "moment": "collectedMs storedMs submittedMs untilMs",
    "moment null": "createdMs endedMs sinceMs startedMs unreachableMs",
    "null number": "finalValue lastValue load",
    "null object": "best commonFailure endpoint hold runnerExit wait waitsFor",
    "null object text": "service",
    "null objects": "paretoSet problems warnings",
    "null text": "cause channel directionNote endedAs failureKey givenUp name optimizeMode reason"
    " repeats runnerVersion stopRequest",
    "null texts": "intermediate",
    "integer null texts": "places",
    "null words": "objectives",
    "object": "data outboxes python",
    "objects": "attempts cleaned gpus interruptions listeners metrics objects packages processes services"
    " tensorboards uses",
    "objects texts": "machines",
    "text": "address branch commit container dataDirectory diff directory doubt error event executable"
    " experimentFile experimentFileDigest field file folder gpuTrouble host jobName key kind"
    " lastWords link logPath manager message noMoreTrials notes outbox parameterSource place platform"
    " problem remote sentence sha256 state stays stderrTail system trouble type unreachable"
    " url urlPrefix user version warning what why",
    "texts": "errors folders references tags undelivered untracked",
    "words": "whyNot",
}
_FORMS = {name: tuple(forms.split()) for forms, names in _GROUPS.items() for name in names.split()}
