"""Reads files that users write, as UTF-8. Errors name file and line."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from nni_manager.config.reading.document import Document, Path
from nni_manager.domain.errors import ConfigInvalid, Problem
from nni_manager.domain.experiment import ConfigWarning

#: Maximum size of an experiment file and of other files that users write, in bytes.
MAX_BYTES = 1024 * 1024
#: Maximum size of a search space file, which a program may have written, in bytes.
MAX_SEARCH_SPACE_BYTES = 8 * 1024 * 1024
#: Number of characters from which a text is large and takes long to read.
LARGE_CHARACTERS = 64 * 1024


def read_text(path: str, most_bytes: int = MAX_BYTES) -> str:
    """The text of a file, without a byte order mark. Raises ConfigInvalid."""
    data = _read_bytes(path, most_bytes)
    if len(data) > most_bytes:
        raise ConfigInvalid.of(too_large(most_bytes), file=path)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigInvalid.of("not UTF-8 text; save the file in that encoding", file=path, line=line) from None


def too_large(most_bytes: int = MAX_BYTES) -> str:
    """The message about a text that is too large."""
    return f"larger than {most_bytes // 2**20} MiB; name another file, or make it smaller"


def _read_bytes(path: str, most_bytes: int) -> bytes:
    try:
        if os.path.exists(path) and not os.path.isfile(path):
            raise ConfigInvalid.of("not a regular file; name a file", file=path)
        with open(path, "rb") as stream:
            return stream.read(most_bytes + 1)
    except OSError as error:
        sentence = f"cannot be read: {error.strerror}; check the name and its permissions"
        raise ConfigInvalid.of(sentence, file=path) from None


#: Beginning of messages about a missing field.
_REQUIRED = "is required"
#: Maximum number of reported problems: a file with more is probably the wrong file.
_MOST_PROBLEMS = 100


@dataclass(slots=True, kw_only=True)
class Source:
    """A config's text and the context of reading it.

    Readers note problems here and continue, so that the user gets all problems at once.
    """

    #: The folder where relative paths start.
    directory: str
    #: Whether relative paths are refused, because the text was written on another machine.
    absolute_paths: bool = False
    #: Default parent of the experiments' folders.
    working_directory: str = "~/nni-experiments"
    #: The file's name in messages; empty for text without a file.
    file: str = ""
    document: Document | None = None
    #: Data directory with the registered algorithms; empty: none.
    data_directory: str = ""
    #: Whether the daemon is on another machine, so that only it can check some values.
    elsewhere: bool = False
    #: Whether the config was accepted before. Checks that depend on this machine or release are then skipped.

    stored: bool = False
    #: Environment in which references to variables are looked up; None: references are not resolved.
    environment: Mapping[str, str] | None = field(default=None, repr=False)
    #: Reference → value, of secrets in the request.
    sent_secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: For a file in NNI's first format: path and message about the canonical config → those about the file.
    translate: Callable[[Path, str], tuple[Path, str]] | None = None
    problems: dict[str, Problem] = field(default_factory=dict)
    #: Warnings, see `warn`, by code, file, line and field.
    found_warnings: dict[tuple[str, str, int, str], ConfigWarning] = field(default_factory=dict)
    #: Reference → value, of the secrets that were found.
    secrets: dict[str, str] = field(default_factory=dict, repr=False)
    #: Fields that have another name in the file: path → the key in the file.
    _spellings: dict[Path, str] = field(default_factory=dict)
    #: Names of fields in the other format → what to write instead, by the path of their section.
    _foreign_names: dict[Path, dict[str, str]] = field(default_factory=dict)
    #: Fields that are missing because of another problem; see `expect_no_more`.
    _not_expected: set[Path] = field(default_factory=set)

    def __post_init__(self) -> None:
        for path, line, message in self.document.faults if self.document else ():
            name = spell(path)
            self._add(Problem(message=message, field=name, file=self.file, line=line))

    def refuse(self, path: Path, message: str) -> None:
        """Note a problem, unless the field has one already: later ones usually follow from the first.

        Raises ConfigInvalid when there are too many.
        """
        place, _ = self._translated(path, message)
        if place not in self._not_expected or not message.startswith(_REQUIRED):
            self._add(self._problem(path, message))

    def expect_no_more(self, path: Path) -> None:
        """Mark a field that is missing because of another problem. It is then not reported as required."""
        self._not_expected.add(path)

    def warn(self, path: Path, code: str, message: str) -> None:
        """Note a warning.

        `code`: as in `ExperimentWarning`. Stored configs are skipped: their warnings were given before.
        """
        if not self.stored:
            it = self._problem(path, message)
            self.pass_on(ConfigWarning(code=code, message=it.message, field=it.field, file=it.file, line=it.line))

    def pass_on(self, warning: ConfigWarning) -> None:
        """Note a warning, like `warn`, from another file that the config names."""
        key = (warning.code, warning.file, warning.line, warning.field)
        self.found_warnings.setdefault(key, warning)

    @property
    def warnings(self) -> tuple[ConfigWarning, ...]:
        """The warnings, in the order of their lines."""
        return tuple(sorted(self.found_warnings.values(), key=lambda warning: warning.line))

    def note_spelling(self, path: Path, key: str) -> None:
        """Notes that the field is called `key` in the file."""
        self._spellings[path] = key

    def note_foreign_names(self, path: Path, names: Mapping[str, str]) -> None:
        """Note names of the other format that do not exist in sections at `path` (without positions in lists).

        `names`: name → what to write instead.
        """
        self._foreign_names.setdefault(path, {}).update(names)

    def foreign_names(self, path: Path) -> Mapping[str, str]:
        """The names of the other format that were noted for the section at `path`."""
        return self._foreign_names.get(tuple(step for step in path if isinstance(step, str)), {})

    def is_refused(self, path: Path) -> bool:
        """Whether the field itself, or something in it, is refused."""
        name = self._problem(path, "").field
        return any(known == name or known.startswith((f"{name}.", f"{name}[")) for known in self.problems)

    def _translated(self, path: Path, message: str) -> tuple[Path, str]:
        return (path, message) if self.translate is None else self.translate(path, message)

    def _problem(self, path: Path, message: str) -> Problem:
        path = tuple(self._spellings.get(path[: end + 1], step) for end, step in enumerate(path))
        path, message = self._translated(path, message)
        spelled, line = self.document.locate(path) if self.document else (path, 0)
        return Problem(message=message, field=spell(spelled), file=self.file, line=line)

    def adopt(self, problem: Problem) -> None:
        """Notes a problem in another file that the config names."""
        self._add(problem, f"{problem.file}:{problem.line}:{problem.field}")

    def check(self) -> None:
        """Raise ConfigInvalid with the noted problems, in the order of their lines, if there are any."""
        if self.problems:
            raise ConfigInvalid(sorted(self.problems.values(), key=lambda problem: problem.line), self.warnings)

    def check_text(self, raw: object) -> None:
        """Raise ValueError for text with a NUL character, which the operating system cannot represent."""
        if isinstance(raw, str) and "\0" in raw and not self.stored:
            raise ValueError("holds a NUL character; remove it")

    def path(self, raw: str) -> str:
        """The path made absolute, ``~`` expanded, symbolic links resolved; a stored one stays as it is."""
        if self.stored:
            return raw
        return os.path.realpath(os.path.join(self.directory, os.path.expanduser(raw)))

    def given_path(self, raw: str) -> str:
        """A path that the config gives, as by `path`. Raises ValueError for a relative one that is refused."""
        if self.absolute_paths and not os.path.isabs(os.path.expanduser(raw)):
            raise ValueError(f"{raw} must be an absolute path, because the daemon is on another machine")
        return self.path(raw)

    def existing_directory(self, raw: str) -> str:
        """The path of a folder, as by `path`. Raises ValueError if the folder does not exist."""
        path = self.given_path(raw)
        if not self.stored and not os.path.isdir(path):
            raise ValueError(f"cannot find folder {path}; relative paths start at {self.directory}")
        return path

    def makeable_directory(self, raw: str) -> str:
        """The path of a folder to create, as by `path`; does not create it. Raises ValueError if that is impossible."""
        path = self.given_path(raw)
        if not (self.stored or self.elsewhere):
            place = _nearest(path)
            if not os.path.isdir(place):
                raise ValueError(f"{path} cannot be created: {place} is not a folder; name another one")
            if not os.access(place, os.W_OK | os.X_OK):
                raise ValueError(f"{path} cannot be created: you may not write to {place}; name another folder")
        return path

    def program(self, raw: str) -> str:
        """The program to run: a name is kept, to be found on a PATH; a path is made absolute.

        Links are kept, because a virtual environment's Python is a link to another Python.
        """
        if self.stored or self.elsewhere or "/" not in raw:
            return raw
        self.given_path(raw)
        return os.path.abspath(os.path.join(self.directory, os.path.expanduser(raw)))

    def existing_file(self, raw: str) -> str:
        """The path of a file, as by `path`. Raises ValueError if the file does not exist."""
        path = self.given_path(raw)
        if not self.stored and not os.path.isfile(path):
            raise ValueError(f"cannot find file {path}; relative paths start at {self.directory}")
        return path

    def _add(self, problem: Problem, key: str = "") -> None:
        """Note a problem under its key. Raises ConfigInvalid at the hundredth problem."""
        self.problems.setdefault(key or problem.field, problem)
        if len(self.problems) >= _MOST_PROBLEMS:
            self.check()


def _nearest(path: str) -> str:
    """The path itself, or the nearest one above it that exists. Raises ValueError."""
    place = path
    while True:
        try:
            os.lstat(place)
            return place
        except (FileNotFoundError, NotADirectoryError):
            place = os.path.dirname(place)
        except OSError as error:  # the name is too long, or we may not look there
            raise ValueError(f"{path} cannot be created: {error.strerror}; name another folder") from None


def spell(path: Path) -> str:
    """The name of a path in messages: ``("trainingService", 0, "platform")`` → ``trainingService[0].platform``."""
    name = ""
    for step in path:
        name += f"[{step}]" if isinstance(step, int) else f".{step}" if name else step
    return name


def steps(name: str) -> Path:
    """The path of a name in messages: ``machineList[0].host`` → ``("machineList", 0, "host")``."""
    parts = name.replace("[", ".").replace("]", "").split(".")
    return tuple(int(part) if part.isdigit() else part for part in parts)
