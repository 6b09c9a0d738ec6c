"""Requests to a keeper: their validated fields, the refusals, and the system errors that mean *try again*."""

import errno
import os
import re
from typing import Any, Dict, List, NamedTuple

from trial_runner import protocol
from trial_runner.wire import full_disks, shortage

#: Errors that pass without a change of the request.
_PASSING = shortage.ERRORS | {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO}


class Refusal(Exception):
    """The answer to a request is an error of this kind (see `trial_runner.protocol`) with this sentence."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


def system_refusal(error: OSError, attempted: str, written: str = os.curdir) -> Refusal:
    """`attempted`: the start of a sentence, such as ``Starting job x``; `written`: a folder that it writes."""
    is_passing = error.errno in _PASSING
    advice = "Try again when that has changed." if is_passing else "Trying again will not help."
    place = " ({})".format(error.filename) if error.filename else ""
    message = "{} failed: {}{}. {}".format(attempted, full_disks.reason(error, written), place, advice)
    return Refusal(protocol.UNAVAILABLE if is_passing else protocol.REJECTED, message)


def fault(error: Exception) -> Refusal:
    """The refusal for an error of the keeper itself."""
    sentence = "The keeper failed at this request: see keeper.log ({}).".format(type(error).__name__)
    return Refusal(protocol.INVALID, sentence)


#: A job's name is also a file's name.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}\Z")
#: A grace period longer than a month is a mistake.
_MAX_GRACE_S = 31 * 24 * 3600.0

Message = Dict[str, Any]


class SpawnRequest(NamedTuple):
    """Everything about a job to be started."""

    name: str
    owner: str
    command: str
    environment: Dict[str, str]
    directory: str
    attempt_directory: str
    files: Dict[str, str]
    grace_s: float
    offsets: Dict[str, int]
    reservation: Dict[str, Any]
    #: Folder of the trial's checkpoints, which is created; empty: none.
    checkpoint: str

    def __repr__(self) -> str:
        # command and environment may contain secrets
        return "SpawnRequest(name={!r})".format(self.name)


def spawn_request(message: Message) -> SpawnRequest:
    """The request in a message. Raises Refusal, as all functions here do."""
    return SpawnRequest(
        name=name(message),
        owner=text(message, "owner", ""),
        command=text(message, "command"),
        environment=_texts(message, "environment"),
        directory=folder(message, "directory"),
        attempt_directory=folder(message, "attempt_directory"),
        files=_texts(message, "files"),
        grace_s=grace_s(message, 5.0),
        offsets=offsets(message.get("from"), "from"),
        reservation=_object(message, "reservation"),
        checkpoint=folder(message, "checkpoint") if "checkpoint" in message else "",
    )


def adoption(message: Message) -> SpawnRequest:
    """As `spawn_request`, for a job that was started before, so nothing is started."""
    return spawn_request(
        dict(message, command="", environment={}, directory="/", files={}, **{"from": message.get("from")})
    )


def name(message: Message) -> str:
    value = text(message, "name")
    expected = "at most 200 of letters, digits, '_', '-' and '.', beginning with none of the last two"
    return str(_required("name", expected, value, _NAME.match(value) is not None))


def names(message: Message) -> List[str]:
    value = message.get("names")
    is_right = isinstance(value, list) and all(isinstance(item, str) for item in value)
    return list(_required("names", "a list of texts", value, is_right))


def text(message: Message, field: str, *default: str) -> str:
    value = message.get(field, *default)
    is_right = isinstance(value, str) and "\0" not in value
    return str(_required(field, "a text without null characters", value, is_right))


def folder(message: Message, field: str) -> str:
    value = text(message, field)
    return os.path.normpath(str(_required(field, "an absolute path", value, os.path.isabs(value))))


def grace_s(message: Message, default: float) -> float:
    value: Any = message.get("grace_s", default)
    is_right = _is_number(value) and 0 <= value <= _MAX_GRACE_S
    return float(_required("grace_s", "a number of seconds, from 0 to a month", value, is_right))


def seconds(message: Message, field: str) -> float:
    value: Any = message.get(field)
    return float(_required(field, "a number of seconds, not negative", value, _is_number(value) and value >= 0))


def count(message: Message, field: str, default: int) -> int:
    value = message.get(field, default)
    return int(_required(field, "a whole number, not negative", value, _is_count(value)))


def whole(message: Message, field: str, default: int) -> int:
    value = message.get(field, default)
    is_right = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63
    return int(_required(field, "a whole number", value, is_right))


def offsets(value: object, field: str) -> Dict[str, int]:
    value = {} if value is None else value
    is_right = isinstance(value, dict) and all(_is_count(offset) for offset in value.values())
    return dict(_required(field, "an object of byte offsets by outbox", value, is_right))


def jobs(message: Message) -> Dict[str, Dict[str, int]]:
    value = message.get("jobs")
    expected = "an object of byte offsets by outbox, by name"
    by_name = _required("jobs", expected, value, isinstance(value, dict))
    return {job: offsets(by_outbox, "jobs") for job, by_outbox in by_name.items()}


def _texts(message: Message, field: str) -> Dict[str, str]:
    value = message.get(field, {})
    is_right = isinstance(value, dict) and {str}.issuperset(map(type, value.values()))
    return dict(_required(field, "an object of texts", value, is_right))


def _object(message: Message, field: str) -> Dict[str, Any]:
    value = message.get(field, {})
    return dict(_required(field, "an object", value, isinstance(value, dict)))


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _required(field: str, expected: str, value: Any, is_right: bool) -> Any:
    """The value, if it is valid."""
    if not is_right:
        raise Refusal(protocol.INVALID, "The argument {!r} must be {}.".format(field, expected))
    return value
