"""All errors, with their HTTP status.

    NniManagerError
    ├── InvalidInput            the input is invalid; names the field
    │   ├── ConfigInvalid       an experiment file with one or more problems
    │   ├── BadDimension        a dimension of a search space
    │   └── MissingExtra        needs packages that an extra installs
    ├── NotFound                the experiment, trial or file does not exist
    ├── Conflict                the state of the object does not allow the request
    │   ├── Ending              the daemon is ending; the next one handles the request
    │   └── AttemptDecided      a replaced attempt still reports
    ├── VersionRefused          the trial runner has an incompatible version
    ├── TooBusy                 too many requests to store; try again in a moment
    ├── StoreError
    │   ├── StoreUnavailable    cannot be written now (full, locked, read-only); retried automatically
    │   ├── StoreCorrupt        cannot be read; needs a user's action
    │   │   └── StoreGone       its file was removed or replaced; it may be restored
    │   └── SchemaRefused       written by an incompatible version
    ├── AnalysisUnavailable     the process that answers about trials is unavailable
    ├── AlreadyOwned            another process holds the folder or data directory
    ├── PlatformError
    │   ├── SubmitRejected      the platform will never accept this job
    │   ├── PlatformUnavailable the platform is unreachable; try again later
    │   └── BadCredentials      needs a user's action
    └── TunerError
        ├── TunerRaised         the algorithm raised an exception; has the traceback
        └── TunerDied           its process has ended
            └── TunerNotStarted a temporary shortage prevents its start

The text of an error is for the user: what happened, which field or job, what to do next. It never contains a secret.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Self


class NniManagerError(Exception):
    """Base of all intentional errors."""


#: Maximum length of a displayed message; of a longer one, the beginning and the end are shown.
_SHOWN, _BEGINNING, _END = 1000, 600, 300


def shortened(sentence: str) -> str:
    """The message, without its middle if it is long because it repeats large input."""
    left_out = len(sentence) - _BEGINNING - _END
    if len(sentence) <= _SHOWN:
        return sentence
    return f"{sentence[:_BEGINNING]}… ({left_out} characters omitted) …{sentence[-_END:]}"


class InvalidInput(NniManagerError):
    """The input is invalid."""

    def __init__(self, message: str) -> None:
        super().__init__(shortened(message))


class MissingExtra(InvalidInput):
    """`what` needs packages that are not installed with the manager; an extra of nni-manager installs them."""

    def __init__(self, what: str, packages: str, extra: str, *, field: str = "") -> None:
        verb = "is" if "," not in packages else "are"
        self.sentence = f"{what} needs {packages}, which {verb} not installed where the manager runs"
        self.command = f"pip install 'nni-manager[{extra}]'"
        super().__init__(f"{field}: {self.sentence}: {self.command}" if field else f"{self.sentence}: {self.command}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A problem in an experiment file."""

    message: str
    #: Dotted path of the field as the user wrote it, e.g. ``trainingService.platform``; empty for the whole file.
    field: str = ""
    #: File the problem is in; empty when the text came without one.
    file: str = ""
    #: 1-based line in that file; 0 when unknown.
    line: int = 0

    def __post_init__(self) -> None:
        for name in ("message", "field"):
            object.__setattr__(self, name, shortened(getattr(self, name)))

    def __str__(self) -> str:
        place = f"{self.file or 'config'}:{self.line}" if self.line else self.file
        return ": ".join(part for part in (place, self.field, self.message) if part)


class ConfigInvalid(InvalidInput):
    """An invalid experiment file, with all `problems` and `warnings` (`domain.experiment.ConfigWarning`)."""

    def __init__(self, problems: Sequence[Problem], warnings: Sequence[Problem] = ()) -> None:
        NniManagerError.__init__(self, "; ".join(map(str, problems)))  # each of them is short
        self.problems = tuple(problems)
        self.warnings = tuple(warnings)

    @classmethod
    def of(cls, message: str, *, field: str = "", file: str = "", line: int = 0) -> Self:
        """An error with a single problem."""
        return cls([Problem(message=message, field=field, file=file, line=line)])


class BadDimension(InvalidInput):
    """An invalid dimension of a search space."""

    def __init__(self, message: str, *, key: tuple[str | int, ...] = (), reason: str = "") -> None:
        super().__init__(message)
        #: As `search_space.Key`.
        self.key = key
        #: The message without the dimension's name.
        self.reason = reason or message


class NotFound(NniManagerError):
    """The experiment, trial or file does not exist."""


class Conflict(NniManagerError):
    """The object's state does not allow the request."""


class Ending(Conflict):
    """The daemon is ending; the next one can handle the request."""


class AttemptDecided(Conflict):
    """The attempt was replaced, so its reports are rejected."""


class VersionRefused(NniManagerError):
    """The trial runner has an incompatible version; the text names both versions."""


class TooBusy(NniManagerError):
    """Too many requests to store; the client must try again in a moment."""


class StoreError(NniManagerError):
    """A fault of an experiment's database."""


class StoreUnavailable(StoreError):
    """The database cannot be written at the moment; the write is retried automatically."""


class StoreCorrupt(StoreError):
    """The database cannot be read."""


class StoreGone(StoreCorrupt):
    """The database's file is missing or was replaced; it may be restored."""


class SchemaRefused(StoreError):
    """The database was written by a newer version, or before the first release."""


class AnalysisUnavailable(NniManagerError):
    """The process that answers queries about trials did not answer; the next query restarts it."""


class AlreadyOwned(NniManagerError):
    """Another process holds this folder or data directory."""


class PlatformError(NniManagerError):
    """A fault of a platform."""


class SubmitRejected(PlatformError):
    """The platform will never accept this job; the text is the reason."""


class PlatformUnavailable(PlatformError):
    """The platform is unreachable at the moment, so nothing changes.

    `refused`: the platform certainly did not accept the job in this call; it may have accepted it in an earlier one.
    """

    def __init__(self, message: str, *, refused: bool = False) -> None:
        super().__init__(message)
        self.refused = refused


class BadCredentials(PlatformError):
    """The platform refuses the credentials; the user must act."""


class TunerError(NniManagerError):
    """An error of a tuner or assessor. `details`: a traceback or last lines, or empty."""

    def __init__(self, message: str, details: str = "") -> None:
        super().__init__(message)
        self.details = details


class TunerRaised(TunerError):
    """The algorithm raised an exception."""


class TunerDied(TunerError):
    """The tuner's process ended."""


class TunerNotStarted(TunerDied):
    """A shortage of processes, memory or descriptors prevents the start of the tuner's process."""


#: Error class → HTTP status; subclasses inherit it.
STATUS: Mapping[type[Exception], HTTPStatus] = {
    InvalidInput: HTTPStatus.BAD_REQUEST,
    NotFound: HTTPStatus.NOT_FOUND,
    Conflict: HTTPStatus.CONFLICT,
    AlreadyOwned: HTTPStatus.CONFLICT,
    StoreCorrupt: HTTPStatus.CONFLICT,
    SchemaRefused: HTTPStatus.CONFLICT,
    StoreUnavailable: HTTPStatus.SERVICE_UNAVAILABLE,
    AnalysisUnavailable: HTTPStatus.SERVICE_UNAVAILABLE,
    PlatformUnavailable: HTTPStatus.SERVICE_UNAVAILABLE,
    NniManagerError: HTTPStatus.INTERNAL_SERVER_ERROR,
}


def status_of(error: Exception) -> HTTPStatus:
    """The HTTP status of an error; 500 if it is not in the table."""
    classes = (STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)
    return next(classes, HTTPStatus.INTERNAL_SERVER_ERROR)
