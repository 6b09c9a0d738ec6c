"""Requests to a keeper: their fields, checked, and the refusals that answer them, with the errors of the system that
mean *try again*."""

import errno
import os
import re
from typing import Any, Dict, List, NamedTuple

from trial_runner import protocol

#: Conditions that pass without a change of the request.
_PASSING = frozenset(
    {
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EROFS,
        errno.EACCES,
        errno.EPERM,
        errno.EMFILE,
        errno.ENFILE,
        errno.EAGAIN,
        errno.ENOMEM,
        errno.EIO,
    }
)


class Refusal(Exception):
    """The answer to a request is an error of this kind (see `trial_runner.protocol`) and with this sentence."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


def system_refusal(error: OSError, attempted: str) -> Refusal:
    """`attempted` is the beginning of a sentence, such as ``Starting job x``."""
    is_passing = error.errno in _PASSING
    advice = "It can be tried again when that has changed." if is_passing else "Trying again will not help."
    place = " ({})".format(error.filename) if error.filename else ""
    message = "{} failed: {}{}. {}".format(attempted, error.strerror or error, place, advice)
    return Refusal(protocol.UNAVAILABLE if is_passing else protocol.REJECTED, message)


def fault(error: Exception) -> Refusal:
    """The refusal for a fault of the keeper itself."""
    sentence = "The keeper failed at this request: see keeper.log ({}).".format(type(error).__name__)
    return Refusal(protocol.INVALID, sentence)


#: A job's name is also a file's name.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}\Z")
#: Grace periods beyond a month are a mistake.
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
    #: Folder of the trial's checkpoints, which is made; empty: none is.
    checkpoint: str

    def __repr__(self) -> str:
        # Command and environment may hold secrets.
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


def name(message: Message) -> str:
    value = text(message, "name")
    if not _NAME.match(value):
        raise _invalid("name", "at most 200 of letters, digits, '_', '-' and '.', beginning with none of the last two")
    return value


def names(message: Message) -> List[str]:
    value = message.get("names")
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise _invalid("names", "a list of texts")
    return value


def text(message: Message, field: str, *default: str) -> str:
    value = message.get(field, *default)
    if not isinstance(value, str) or "\0" in value:
        raise _invalid(field, "a text without null characters")
    return value


def folder(message: Message, field: str) -> str:
    value = text(message, field)
    if not os.path.isabs(value):
        raise _invalid(field, "an absolute path")
    return os.path.normpath(value)


def grace_s(message: Message, default: float) -> float:
    value = message.get("grace_s", default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= _MAX_GRACE_S:
        raise _invalid("grace_s", "a number of seconds, from 0 to a month")
    return float(value)


def seconds(message: Message, field: str) -> float:
    value = message.get(field)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
        raise _invalid(field, "a number of seconds, not negative")
    return float(value)


def count(message: Message, field: str, default: int) -> int:
    value = message.get(field, default)
    if not _is_count(value):
        raise _invalid(field, "a whole number, not negative")
    return int(value)


def whole(message: Message, field: str, default: int) -> int:
    value = message.get(field, default)
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) >= 2**63:
        raise _invalid(field, "a whole number")
    return value


def offsets(value: object, field: str) -> Dict[str, int]:
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(_is_count(offset) for offset in value.values()):
        raise _invalid(field, "an object of byte offsets by outbox")
    return value


def jobs(message: Message) -> Dict[str, Dict[str, int]]:
    value = message.get("jobs")
    if not isinstance(value, dict):
        raise _invalid("jobs", "an object of byte offsets by outbox, by name")
    return {job: offsets(by_outbox, "jobs") for job, by_outbox in value.items()}


def _texts(message: Message, field: str) -> Dict[str, str]:
    value = message.get(field, {})
    if not isinstance(value, dict) or not {str}.issuperset(map(type, value.values())):
        raise _invalid(field, "an object of texts")
    return value


def _object(message: Message, field: str) -> Dict[str, Any]:
    value = message.get(field, {})
    if not isinstance(value, dict):
        raise _invalid(field, "an object")
    return value


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _invalid(field: str, expected: str) -> Refusal:
    return Refusal(protocol.INVALID, "The argument {!r} must be {}.".format(field, expected))
