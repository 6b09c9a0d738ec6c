"""A section: one mapping of a config, read field by field."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TypeVar

from nni_manager.config.reading.document import Path, fold
from nni_manager.config.reading.source import Source

T = TypeVar("T")

NO_NAMES: Mapping[str, str] = MappingProxyType({})


class Section:
    """A mapping of a config with its known fields.

    Case and underscores of names are ignored. An unknown field is refused with the nearest known name. A field that is
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
        """`other_names`: other names of fields → field; `old_names`: the same, with a warning."""
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
        """The canonical value of a field; None if it is not set, or invalid (which is noted)."""
        if name not in self._values:
            return None
        try:
            self._source.check_text(self._values[name])
            return parse(self._values[name])
        except ValueError as error:
            self.refuse(name, str(error))
            return None

    def require(self, name: str, advice: str) -> None:
        """Refuse the section if the field is missing, unless a misspelled key explains that."""
        if name not in self._values and name not in self._misspelled:
            self.refuse(name, f"is required and not set; {advice}")

    def refuse(self, name: str, message: str) -> None:
        self._source.refuse((*self.path, name), message)

    def _admit(self, key: str, value: object) -> None:
        name = self._names.get(fold(key)) or self._other_names.get(fold(key))
        if name is None:
            self._refuse_unknown(key, value)
        elif name in self._values:
            self._source.refuse((*self.path, key), f"is another spelling of {name}, which is set, too; keep one")
        elif value is not None:
            self._values[name] = value
            if fold(key) in self._other_names:
                self._source.note_spelling((*self.path, name), key)
            if fold(key) in self._old_names:
                self._source.warn((*self.path, key), "OLD_NAME", f"is an older name; write {name}")

    def _expect_no_more(self, name: str) -> None:
        self._misspelled.add(name)
        self._source.expect_no_more((*self.path, name))

    def _refuse_unknown(self, key: str, value: object) -> None:
        if (here := self._foreign_names.get(fold(key))) is not None:
            self._expect_no_more(here)
            return self._source.refuse((*self.path, key), f"is the name in NNI's other config format; write {here}")

        if where := _place_of(key, value, self.path, self._source):
            return self._source.refuse((*self.path, key), f"is unknown here; it belongs {where}")
        guess = nearest(key, self._names.values())
        if guess:
            self._expect_no_more(guess)
        advice = f"did you mean {guess}?" if guess else f"fields here: {', '.join(self._names.values())}"
        self._source.refuse((*self.path, key), f"unknown field; {advice}")


def nearest(word: str, words: Iterable[str]) -> str:
    """The one of `words` that `word` probably misspells; empty if none is similar."""
    import difflib  # needed only for an error

    folded = {fold(candidate): candidate for candidate in words}
    return next((folded[match] for match in difflib.get_close_matches(fold(word), folded, n=1)), "")


def _place_of(key: str, value: object, path: Path, source: Source) -> str:
    from nni_manager.config.sections.field_places import place_of  # imports pydantic, needed only for an error

    return place_of(key, value, path, source)
