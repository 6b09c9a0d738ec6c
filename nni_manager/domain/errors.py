"""The whole error tree, and the HTTP status of each.

    NniManagerError
    ├── InvalidInput            what was sent cannot be used; names the field
    │   ├── ConfigInvalid       an experiment file with one or more problems
    │   ├── BadDimension        one dimension of a search space
    │   └── MissingExtra        needs packages that an extra installs
    ├── NotFound                no such experiment, trial or file
    ├── Conflict                exists, but its state does not allow this
    │   ├── Ending              the daemon is ending; the next one takes it
    │   └── AttemptDecided      an attempt that is fenced off still reports
    ├── VersionRefused          a trial runner whose version does not fit
    ├── TooBusy                 more comes in than can be stored; again in a moment
    ├── StoreError
    │   ├── StoreUnavailable    cannot be written now (full, locked, read-only); tried again by itself
    │   ├── StoreCorrupt        cannot be read; a person must look
    │   │   └── StoreGone       its file was removed or replaced; it may be put back
    │   └── SchemaRefused       written by a version whose databases this one does not read
    ├── AnalysisUnavailable     the process that answers about trials cannot answer now
    ├── AlreadyOwned            another process holds the folder or data directory
    ├── PlatformError
    │   ├── SubmitRejected      this job will never be accepted
    │   ├── PlatformUnavailable nothing can be said now; ask again later
    │   └── BadCredentials      a person must act
    └── TunerError
        ├── TunerRaised         the user's or our algorithm raised; carries the traceback
        └── TunerDied           its process is gone
            └── TunerNotStarted a shortage, which passes, prevents its start

The text of an error is for the user: what happened, which field or job, what to do next. No text carries a secret.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Self


class NniManagerError(Exception):
    """Root of all errors that are raised on purpose."""


#: The most characters of a sentence that are shown; of a longer one its beginning and end.
_SHOWN, _BEGINNING, _END = 1000, 600, 300


def shortened(sentence: str) -> str:
    """The sentence, its middle left out where it is long because it repeats large input."""
    left_out = len(sentence) - _BEGINNING - _END
    if len(sentence) <= _SHOWN:
        return sentence
    return f"{sentence[:_BEGINNING]}… ({left_out} characters are left out) …{sentence[-_END:]}"


class InvalidInput(NniManagerError):
    """The input cannot be used."""

    def __init__(self, message: str) -> None:
        super().__init__(shortened(message))


class MissingExtra(InvalidInput):
    """`what` needs packages that are not installed where the manager runs; an extra of nni-manager installs them."""

    def __init__(self, what: str, packages: str, extra: str, *, field: str = "") -> None:
        verb = "is" if "," not in packages else "are"
        self.sentence = f"{what} needs {packages}, which {verb} not installed where the manager runs"
        self.command = f"pip install 'nni-manager[{extra}]'"
        super().__init__(f"{field}: {self.sentence}: {self.command}" if field else f"{self.sentence}: {self.command}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing wrong with an experiment file."""

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
    """An experiment file that cannot be used; `problems` lists every reason found, `warnings` what was found besides
    (`domain.experiment.ConfigWarning`)."""

    def __init__(self, problems: Sequence[Problem], warnings: Sequence[Problem] = ()) -> None:
        NniManagerError.__init__(self, "; ".join(map(str, problems)))  # each of them is short
        self.problems = tuple(problems)
        self.warnings = tuple(warnings)

    @classmethod
    def of(cls, message: str, *, field: str = "", file: str = "", line: int = 0) -> Self:
        """One with a single problem."""
        return cls([Problem(message=message, field=field, file=file, line=line)])


class BadDimension(InvalidInput):
    """A dimension of a search space that cannot be used."""

    def __init__(self, message: str, *, key: tuple[str | int, ...] = (), reason: str = "") -> None:
        super().__init__(message)
        #: As `search_space.Key`.
        self.key = key
        #: The message without the dimension's name.
        self.reason = reason or message


class NotFound(NniManagerError):
    """No such experiment, trial or file."""


class Conflict(NniManagerError):
    """The thing exists, but its state does not allow what was asked."""


class Ending(Conflict):
    """The daemon is ending; the next one takes what was asked."""


class AttemptDecided(Conflict):
    """The attempt was replaced by another; its reports are rejected."""


class VersionRefused(NniManagerError):
    """The trial runner has another version than the manager; the text names both."""


class TooBusy(NniManagerError):
    """More arrives than can be stored now; the client tries again in a moment."""


class StoreError(NniManagerError):
    """A fault of an experiment's database."""


class StoreUnavailable(StoreError):
    """The database cannot be written at the moment; the write is tried again by itself."""


class StoreCorrupt(StoreError):
    """The database cannot be read."""


class StoreGone(StoreCorrupt):
    """The database's file is gone, or another one is in its place; it may be put back."""


class SchemaRefused(StoreError):
    """The database was written by a newer version, or by one from before the first release."""


class AnalysisUnavailable(NniManagerError):
    """The process that answers questions about trials did not answer; the next question starts it anew."""


class AlreadyOwned(NniManagerError):
    """Another process holds this folder or data directory."""


class PlatformError(NniManagerError):
    """A fault of a platform."""


class SubmitRejected(PlatformError):
    """An error: this job will never be accepted; the text says why."""


class PlatformUnavailable(PlatformError):
    """The platform cannot be asked at the moment; nothing is known and nothing changes.

    `refused`: of a submission, that the job was certainly not taken by this call; an earlier one may have had it taken.
    """

    def __init__(self, message: str, *, refused: bool = False) -> None:
        super().__init__(message)
        self.refused = refused


class BadCredentials(PlatformError):
    """The platform refuses the credentials; the user must act."""


class TunerError(NniManagerError):
    """Something about a tuner or assessor. `details`: a traceback or last words, or empty."""

    def __init__(self, message: str, details: str = "") -> None:
        super().__init__(message)
        self.details = details


class TunerRaised(TunerError):
    """The algorithm raised an exception."""


class TunerDied(TunerError):
    """The tuner's process ended."""


class TunerNotStarted(TunerDied):
    """The tuner's process cannot be started for now: processes, memory or descriptors are short."""


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
    """The HTTP status of an error; 500 where the table has none."""
    classes = (STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)
    return next(classes, HTTPStatus.INTERNAL_SERVER_ERROR)
