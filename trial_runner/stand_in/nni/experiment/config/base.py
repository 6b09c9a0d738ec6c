"""The base of the classes of a config: fields by name, and NNI's canonical form of them."""

from __future__ import annotations

import copy
import os
from functools import lru_cache

from nni.experiment.config.utils import camel_case, case_insensitive, resolve_path

TYPE_CHECKING = False  # `typing` is slow to import and only checkers need it
if TYPE_CHECKING:
    from typing import Any, Dict, FrozenSet, Iterator, List, Tuple

__all__ = ["ConfigBase"]


class ConfigBase:
    """Fields by name, None: not set. Keywords may be spelled as in Python or as in a file; a name that neither the
    class nor nni-manager has raises AttributeError.

    Class attributes are NNI's defaults, which programs read. nni-manager gets the fields that are set.
    """

    _names = ""
    _defaults: Dict[str, Any] = {}
    #: Field → constructor for mappings given for it, alone or in a list.
    _parts: Dict[str, Any] = {}
    #: Fields with a path.
    _paths = ""
    #: Fields that NNI's canonical form must have.
    _required = ""
    #: Where relative paths start; None: at the current folder.
    _directory: Any = None

    def __init__(self, **given: Any) -> None:
        kind = type(self)
        names = kind._names.split()
        known = {case_insensitive(name): name for name in (*names, *self._defaults)}
        unknown = [name for name in given if case_insensitive(name) not in known and not _is_of_nni_manager(name)]
        if unknown:
            raise AttributeError("{} does not have field(s) {}".format(kind.__name__, ", ".join(unknown)))
        self.__dict__.update((name, None) for name in names if not hasattr(kind, name))
        self.__dict__.update((name, type(value)() if value == [] else value) for name, value in self._defaults.items())
        for name, value in given.items():
            field = known.get(case_insensitive(name), name)
            self.__dict__[field] = _made(self._parts.get(field), value)

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name.startswith("_") or hasattr(self, name) or _is_of_nni_manager(name)):
            raise AttributeError("{} does not have field {}".format(type(self).__name__, name))
        super().__setattr__(name, value)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and dict(other._all_fields()) == dict(self._all_fields())  # type: ignore[attr-defined]

    __hash__ = None  # type: ignore[assignment]  # it can change

    def __repr__(self) -> str:
        fields = ", ".join("{}={!r}".format(name, value) for name, value in self._set_fields())
        return "{}({})".format(type(self).__name__, fields)

    @classmethod
    def load(cls, path: Any) -> Any:
        """The config that a YAML or JSON file holds; relative paths start at its folder."""
        fields = read_file(path)
        if not isinstance(fields, dict):
            raise TypeError("{} does not contain a mapping of fields".format(path))
        self = cls(**fields)
        self._directory = os.path.dirname(os.path.abspath(path))
        return self

    def canonical_copy(self) -> Any:
        """A copy in NNI's canonical form: with defaults, absolute paths and lists of GPUs.

        Raises ValueError for a field that is missing.
        """
        canonical = copy.deepcopy(self)
        canonical._canonicalize([])
        canonical._validate_canonical()
        return canonical

    def validate(self) -> None:
        """Raises ValueError for a field that is missing."""
        self.canonical_copy()

    def json(self) -> Dict[str, Any]:
        """The canonical form as NNI's REST API has it. Raises ValueError for a field that is missing."""
        return _as_json(self.canonical_copy())

    def _canonicalize(self, parents: List[ConfigBase]) -> None:
        """Brings the fields into canonical form. `parents`: the configs that hold this one, the nearest first."""
        directory = [self, *parents][-1]._directory or os.getcwd()
        for name, value in self._all_fields():
            if name in self._paths.split() and value is not None:
                self.__dict__[name] = resolve_path(value, directory)
                continue
            self.__dict__[name] = made = _made(self._parts.get(name), value)
            for child in made if isinstance(made, list) else [made]:
                if isinstance(child, ConfigBase):
                    child._canonicalize([self, *parents])

    def _validate_canonical(self) -> None:
        """Raises ValueError for a field of a canonical config that is missing."""
        for name, value in self._all_fields():
            if value is None and name in self._required.split():
                raise ValueError("{}: {} is not set".format(type(self).__name__, name))
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ConfigBase):
                    child._validate_canonical()

    def _sent(self) -> Dict[str, Any]:
        """The fields that are set, in the spelling of experiment files, for nni-manager."""
        return {camel_case(name): _plain(value, _of_sent) for name, value in self._set_fields()}

    def _set_fields(self) -> List[Tuple[str, Any]]:
        return [(name, value) for name, value in self.__dict__.items() if value is not None and name[0] != "_"]

    def _all_fields(self) -> List[Tuple[str, Any]]:
        own = [name for name in self.__dict__ if name[0] != "_"]
        return [(name, getattr(self, name)) for name in dict.fromkeys([*self._names.split(), *own])]


def read_file(path: Any) -> Any:
    """The value that a YAML or JSON file holds. Raises ValueError for a file that is neither."""
    from nni_manager.config.reading import yaml_reader
    from nni_manager.domain.errors import InvalidInput

    with open(path, encoding="utf-8") as file:
        text = file.read()
    try:
        return yaml_reader.read(text, str(path)).root.value
    except InvalidInput as error:
        raise ValueError(str(error)) from None


def _made(kind: Any, value: Any) -> Any:
    if isinstance(value, list):
        return [_made(kind, one) for one in value]
    return kind(**value) if kind is not None and isinstance(value, dict) else value


def _is_of_nni_manager(name: str) -> bool:
    """Whether experiment files have such a field here, which NNI does not know."""
    return case_insensitive(name) in _fields_of_nni_manager()


@lru_cache(maxsize=None)
def _fields_of_nni_manager() -> FrozenSet[str]:
    try:
        from nni_manager.config.schema import experiment_schema
    except ImportError:
        return frozenset()
    return frozenset(map(case_insensitive, _properties(experiment_schema())))


def _properties(schema: Any) -> Iterator[str]:
    """The names of all fields in a JSON schema."""
    if isinstance(schema, dict):
        yield from schema.get("properties", {})
    for one in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from _properties(one)


def _as_json(config: ConfigBase) -> Dict[str, Any]:
    return {camel_case(name): _plain(value, _as_json) for name, value in config._all_fields() if value is not None}


def _of_sent(config: ConfigBase) -> Dict[str, Any]:
    return config._sent()


def _plain(value: Any, of_config: Any) -> Any:
    if isinstance(value, ConfigBase):
        return of_config(value)
    if isinstance(value, list):
        return [_plain(one, of_config) for one in value]
    return os.fspath(value) if hasattr(value, "__fspath__") else value
