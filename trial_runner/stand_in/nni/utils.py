"""Helpers under the names that user tuners and trial code import: results, modes, arguments."""

from __future__ import annotations

import os
from enum import Enum

from nni.absent import refuse_missing

TYPE_CHECKING = False  # `typing` is slow to import and only checkers need it
if TYPE_CHECKING:
    from typing import Any, Callable, List, Union

__getattr__ = refuse_missing(__name__)


class OptimizeMode(Enum):
    """Which results are better."""

    Minimize = "minimize"
    Maximize = "maximize"


class MetricType:
    """Kinds of metric, as NNI writes them."""

    FINAL = "FINAL"
    PERIODICAL = "PERIODICAL"
    REQUEST_PARAMETER = "REQUEST_PARAMETER"


class NodeType:
    """Keys of a search space and of parameters drawn from it."""

    ROOT = "root"
    TYPE = "_type"
    VALUE = "_value"
    INDEX = "_index"
    NAME = "_name"


def extract_scalar_reward(value: Any, scalar_key: str = "default") -> Union[int, float]:
    """The number in a result: the result itself, or its entry `scalar_key`. Raises RuntimeError when there is none."""
    number = value.get(scalar_key) if isinstance(value, dict) else value
    if isinstance(number, (int, float)):
        return number
    raise RuntimeError(
        "The result {!r} contains no number: report a number, or a mapping with a number under {!r}.".format(
            value, scalar_key
        )
    )


def extract_scalar_history(trial_history: List[Any], scalar_key: str = "default") -> List[Union[int, float]]:
    """The number in each intermediate result; raises as `extract_scalar_reward`."""
    return [extract_scalar_reward(value, scalar_key) for value in trial_history]


def dump(obj: Any, **options: Any) -> str:
    """JSON text of a value. `options`: as `json.dumps` takes them."""
    import json

    return json.dumps(obj, **options)


def load(string: str, **options: Any) -> Any:
    """The value of a JSON text. `options`: as `json.loads` takes them."""
    import json

    return json.loads(string, **options)


def split_index(params: Any) -> Any:
    """Parameters without the ``_index`` that a tuner stored with each choice."""
    if not isinstance(params, dict):
        return params
    if NodeType.INDEX in params:
        return split_index(params[NodeType.VALUE])
    return {name: split_index(value) for name, value in params.items()}


def convert_dict2tuple(value: Any) -> Any:
    """Mappings as sorted tuples of pairs, at every depth, so that they can be in a set."""
    if isinstance(value, dict):
        return tuple(sorted((name, convert_dict2tuple(inner)) for name, inner in value.items()))
    return value


def json2space(x: Any, oldy: Any = None, name: str = NodeType.ROOT) -> List[str]:
    """Names of all dimensions of a search space, inner ones first; `oldy`: parameters with ``_index``, whose choices
    alone are followed."""
    if isinstance(x, list):
        return [found for number, inner in enumerate(x) for found in _named(inner, number, oldy, name, json2space)]
    if not isinstance(x, dict):
        return []
    if NodeType.TYPE not in x:
        inner = ((inner, oldy[key] if oldy else None, "{}[{}]".format(name, key)) for key, inner in x.items())
        return [found for arguments in inner for found in json2space(*arguments)]
    name = "{}-{}".format(name, x[NodeType.TYPE])
    return [*(_chosen(x, oldy, name) if x[NodeType.TYPE] == "choice" else ()), name]


def _chosen(x: Any, oldy: Any, name: str) -> List[str]:
    if oldy is None:
        return json2space(x[NodeType.VALUE], None, name)
    index = oldy[NodeType.INDEX]
    return json2space(x[NodeType.VALUE][index], oldy[NodeType.VALUE], "{}[{}]".format(name, index))


def json2parameter(
    x: Any, is_rand: Any, random_state: Any, oldy: Any = None, Rand: bool = False, name: str = NodeType.ROOT
) -> Any:
    """Parameters from a search space: a dimension is drawn where `is_rand`, by its name, or `Rand` says so, and else
    taken from `oldy`. A choice is ``{"_index", "_value"}``. `random_state`: a `numpy.random.RandomState`."""

    def inner(space: Any, old: Any, inner_name: str) -> Any:
        return json2parameter(space, is_rand, random_state, old, Rand, inner_name)

    if isinstance(x, list):
        return [_named(one, number, oldy, name, inner) for number, one in enumerate(x)]
    if isinstance(x, dict) and NodeType.TYPE not in x:
        return {key: inner(one, oldy[key] if oldy else None, "{}[{}]".format(name, key)) for key, one in x.items()}
    from copy import deepcopy

    if not isinstance(x, dict):
        return deepcopy(x)
    name = "{}-{}".format(name, x[NodeType.TYPE])
    Rand = Rand or is_rand[name]
    return _drawn(x, random_state, name, inner) if Rand else deepcopy(oldy)


def _drawn(x: Any, random_state: Any, name: str, inner: Callable[[Any, Any, str], Any]) -> Any:
    from nni import parameter_expressions

    if x[NodeType.TYPE] != "choice":
        return getattr(parameter_expressions, x[NodeType.TYPE])(*x[NodeType.VALUE], random_state)
    index = random_state.randint(len(x[NodeType.VALUE]))
    chosen = inner(x[NodeType.VALUE][index], None, "{}[{}]".format(name, index))
    return {NodeType.INDEX: index, NodeType.VALUE: chosen}


def _named(one: Any, number: int, oldy: Any, name: str, go_on: Callable[[Any, Any, str], Any]) -> Any:
    if isinstance(one, dict) and NodeType.NAME not in one:
        raise RuntimeError("A choice that holds dimensions of its own needs a '_name' in each of them.")
    return go_on(one, oldy[number] if oldy else None, "{}[{}]".format(name, number))


def merge_parameter(base_params: Any, override_params: Any) -> Any:
    """Sets `override_params` in a namespace or mapping of defaults, which is changed and returned.

    Raises ValueError for a name that has no default, or a value of another type than its default.
    """
    for name, value in (override_params or {}).items():
        if isinstance(base_params, dict):
            base_params[name] = _like(name, base_params.get(name, _NOTHING), value)
        else:
            setattr(base_params, name, _like(name, getattr(base_params, name, _NOTHING), value))
    return base_params


_NOTHING = object()


def _like(name: str, default: Any, value: Any) -> Any:
    if default is _NOTHING:
        raise ValueError(
            "The parameter {0!r} has no default: give it one, or take {0!r} out of the search space.".format(name)
        )
    if default is None or isinstance(value, type(default)):
        return value
    if isinstance(default, float) and isinstance(value, int):
        return float(value)
    raise ValueError(
        "The parameter {!r} is {!r}, but its default {!r} is of type {}: make the types agree.".format(
            name, value, default, type(default).__name__
        )
    )


class ClassArgsValidator:
    """Checks the `classArgs` of a user tuner or assessor before the experiment starts.

    A subclass overrides `validate_class_args`. The other methods make checks with a method ``validate(value)``, which
    the package `schema` takes as parts of its schemas.
    """

    def validate_class_args(self, **kwargs: Any) -> None:
        """Raises when the arguments are wrong; takes them all by default."""

    def choices(self, key: str, *args: Any) -> _Check:
        """A check that the value is one of `args`."""
        return _Check(lambda value: value in args, "{} should be one of {}".format(key, list(args)))

    def range(self, key: str, keyType: type, start: Any, end: Any) -> _Check:
        """A check that the value is a `keyType` from `start` to `end`, both included."""
        return _Check(
            lambda value: isinstance(value, keyType) and start <= value <= end,
            "{} should be of type {} and from {} to {}".format(key, keyType.__name__, start, end),
        )

    def path(self, key: str) -> _Check:
        """A check that the value is the path of something that exists."""
        return _Check(
            lambda value: isinstance(value, str) and os.path.exists(value),
            "{} should be an existing path".format(key),
        )


class _Check:
    def __init__(self, holds: Callable[[Any], bool], sentence: str) -> None:
        self._holds = holds
        self._sentence = sentence

    def validate(self, value: Any, **_: Any) -> Any:
        """The value. Raises ValueError when it does not hold."""
        if not self._holds(value):
            raise ValueError("{}, not {!r}.".format(self._sentence, value))
        return value
