"""A section: one mapping of a config, read field by field."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from nni_manager.config.reading.document import Path, fold
from nni_manager.config.reading.source import Source
from nni_manager.domain.errors import InvalidInput

if TYPE_CHECKING:
    from pydantic import BaseModel

_ALGORITHMS = ("tuner", "assessor", "advisor")
_OF_ALGORITHM = ("className", "codeDirectory", "classArgs")
_ARGUMENTS = ("optimize_mode",)

T = TypeVar("T")

NO_NAMES: Mapping[str, str] = MappingProxyType({})


class Section:
    """A mapping of a config with its known fields.

    Case and underscores of names are ignored; an unknown field is refused with the nearest known name. A field that is
    null is not set.
    """

    def __init__(
        self,
        values: Mapping[str, object],
        names: Iterable[str],
        path: Path,
        source: Source,
        *,
        other_names: Mapping[str, str] = NO_NAMES,
        old_names: Mapping[str, str] = NO_NAMES,
    ) -> None:
        """`other_names`: other names of fields → field; `old_names` likewise, with a warning."""
        self.path = path
        self._source = source
        self._names = {fold(name): name for name in names}
        self._other_names = {fold(other): name for other, name in {**other_names, **old_names}.items()}
        self._old_names = {fold(old) for old in old_names}
        self._foreign_names = {fold(foreign): name for foreign, name in source.foreign_names(path).items()}
        self._values: dict[str, object] = {}
        self._misspelled: set[str] = set()
        for key, value in values.items():
            self._admit(key, value)

    def has(self, name: str) -> bool:
        return name in self._values

    def raw(self, name: str) -> object:
        """The value of a field as given; None when not set."""
        return self._values.get(name)

    def take(self, name: str, parse: Callable[[object], T]) -> T | None:
        """The canonical value of a field; None when it is not set, or refused (and then noted)."""
        if name not in self._values:
            return None
        try:
            self._source.check_text(self._values[name])
            return parse(self._values[name])
        except ValueError as error:
            self.refuse(name, str(error))
            return None

    def require(self, name: str, advice: str) -> None:
        """Refuses the section when the field is missing, unless a misspelled key explains that."""
        if name not in self._values and name not in self._misspelled:
            self.refuse(name, f"is required and not set; {advice}")

    def refuse(self, name: str, message: str) -> None:
        self._source.refuse((*self.path, name), message)

    def _admit(self, key: str, value: object) -> None:
        name = self._names.get(fold(key)) or self._other_names.get(fold(key))
        if name is None:
            self._refuse_unknown(key)
        elif name in self._values:
            self._source.refuse((*self.path, key), f"is another spelling of {name}, which is given too; keep one")
        elif value is not None:
            self._values[name] = value
            if fold(key) in self._other_names:
                self._source.note_spelling((*self.path, name), key)
            if fold(key) in self._old_names:
                self._source.warn((*self.path, key), "OLD_NAME", f"is an older name; write {name}")

    def _expect_no_more(self, name: str) -> None:
        self._misspelled.add(name)
        self._source.expect_no_more((*self.path, name))

    def _refuse_unknown(self, key: str) -> None:
        if (here := self._foreign_names.get(fold(key))) is not None:
            self._expect_no_more(here)
            return self._source.refuse((*self.path, key), f"is how NNI's other config format calls it; write {here}")

        if where := place_of(key, self.path, self._source):
            return self._source.refuse((*self.path, key), f"is not known here; it belongs {where}")
        guess = nearest(key, self._names.values())
        if guess:
            self._expect_no_more(guess)
        advice = f"did you mean {guess}?" if guess else f"known here: {', '.join(self._names.values())}"
        self._source.refuse((*self.path, key), f"unknown field; {advice}")


def nearest(word: str, words: Iterable[str]) -> str:
    """The one of `words` that `word` is most likely a misspelling of; empty when none is near."""
    import difflib  # only ever needed for an error

    folded = {fold(candidate): candidate for candidate in words}
    return next((folded[match] for match in difflib.get_close_matches(fold(word), folded, n=1)), "")


def place_of(key: str, path: Path, source: Source) -> str:
    """Where a field that is unknown at `path` belongs: ``at the top of the file``, ``in trainingService``; empty: it
    belongs nowhere."""
    given = source.document.top if source.document is not None else {}
    if not given or fold("trainingServicePlatform") in given:
        return ""
    here = ".".join(str(step) for step in path if isinstance(step, str))
    return next((where for name, place, where in _fields(given) if fold(name) == fold(key) and place != here), "")


def _fields(given: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """(name, path of its section, the same in words) of every field that the file could have. `given`: the values at
    its top, by folded name."""
    from nni_manager.config.sections.experiment_model import FIELDS  # brings pydantic, for an error alone

    sections = [one for one in _ALGORITHMS if one in given]
    for section in sections:  # before the field of that name which stands instead of a tuner
        yield from ((name, f"{section}.classArgs", f"in {section}.classArgs") for name in _ARGUMENTS)
    yield from ((name, "", "at the top of the file") for name in FIELDS)
    yield from _of_platforms(given.get("trainingservice"))
    for section in sections:
        yield from ((name, section, f"in {section}") for name in _OF_ALGORITHM)


def _of_platforms(raw: object) -> Iterator[tuple[str, str, str]]:
    from nni_manager.platform_kit import registry

    for section in raw if isinstance(raw, list) else [raw]:
        values = section if isinstance(section, dict) else {}
        name = next((str(values[key]) for key in values if fold(key) == "platform"), "")
        try:
            model = registry.find(name).config
        except InvalidInput:
            continue
        yield from _of_model(model, "trainingService", "trainingService")


def _of_model(model: type[BaseModel], path: str, words: str) -> Iterator[tuple[str, str, str]]:
    from nni_manager.config.sections.model_fields import fields_of, models_in

    for name, field in fields_of(model).items():
        yield name, path, f"in {words}"
        for inner in models_in(field.annotation):
            above = f"{path}.{name}"
            yield from _of_model(inner, above, f"each entry of {above}" if "list[" in str(field.annotation) else above)
