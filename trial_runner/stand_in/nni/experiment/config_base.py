"""The base of the classes of a config: fields by name."""

from __future__ import annotations

import os
from functools import lru_cache

TYPE_CHECKING = False  # `typing` is slow to import and only checkers need it
if TYPE_CHECKING:
    from typing import Any, Dict, FrozenSet, Iterator, List, Tuple


class ConfigBase:
    """Fields by name, None where not set. Keywords may be spelled as in Python or as in a file; a name that neither the
    class nor nni-manager has raises AttributeError.

    Class attributes are NNI's defaults, which programs read; `json` leaves them out.
    """

    _names = ""
    _defaults: Dict[str, Any] = {}
    #: Field → what makes an object of a mapping that is given for it, alone or in a list.
    _parts: Dict[str, Any] = {}

    def __init__(self, **given: Any) -> None:
        kind = type(self)
        names = kind._names.split()
        known = {folded(name): name for name in (*names, *self._defaults)}
        unknown = [name for name in given if folded(name) not in known and not _is_of_nni_manager(name)]
        if unknown:
            raise AttributeError("{} does not have field(s) {}".format(kind.__name__, ", ".join(unknown)))
        self.__dict__.update((name, None) for name in names if not hasattr(kind, name))
        self.__dict__.update((name, type(value)() if value == [] else value) for name, value in self._defaults.items())
        for name, value in given.items():
            field = known.get(folded(name), name)
            self.__dict__[field] = _made(self._parts.get(field), value)

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name.startswith("_") or hasattr(self, name) or _is_of_nni_manager(name)):
            raise AttributeError("{} does not have field {}".format(type(self).__name__, name))
        super().__setattr__(name, value)

    def json(self) -> Dict[str, Any]:
        """The fields that are set, in the spelling of experiment files."""
        return {_camel(name): _plain(value) for name, value in self._set_fields()}

    def __repr__(self) -> str:
        fields = ", ".join("{}={!r}".format(name, value) for name, value in self._set_fields())
        return "{}({})".format(type(self).__name__, fields)

    def _set_fields(self) -> List[Tuple[str, Any]]:
        return [(name, value) for name, value in self.__dict__.items() if value is not None and name[0] != "_"]


def _made(kind: Any, value: Any) -> Any:
    if isinstance(value, list):
        return [_made(kind, one) for one in value]
    return kind(**value) if kind is not None and isinstance(value, dict) else value


def _is_of_nni_manager(name: str) -> bool:
    """Whether experiment files have such a field here, which NNI does not know."""
    return folded(name) in _fields_of_nni_manager()


@lru_cache(maxsize=None)
def _fields_of_nni_manager() -> FrozenSet[str]:
    try:
        from nni_manager.config.schema import experiment_schema
    except ImportError:
        return frozenset()
    return frozenset(map(folded, _properties(experiment_schema())))


def _properties(schema: Any) -> Iterator[str]:
    """The names of all fields in a JSON schema."""
    if isinstance(schema, dict):
        yield from schema.get("properties", {})
    for one in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from _properties(one)


def folded(name: str) -> str:
    return name.replace("_", "").lower()


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(part.capitalize() for part in others)


def _plain(value: Any) -> Any:
    if isinstance(value, ConfigBase):
        return value.json()
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return os.fspath(value) if hasattr(value, "__fspath__") else value
