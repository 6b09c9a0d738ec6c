"""Dimensions of a search space, for programs.

::

    from nni_manager import space

    search_space = {
        "lr": space.loguniform(1e-5, 1e-1),
        "layers": space.randint(1, 5),
        "optimizer": space.choice("sgd", "adam"),
    }

Each function returns NNI's dict, such as ``{"_type": "loguniform", "_value": [1e-05, 0.1]}``. Numbers may be those of
numpy, pandas or torch. Wrong arguments raise InvalidInput at the call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

from nni_manager.domain.errors import BadDimension, InvalidInput
from nni_manager.domain.space import search_space
from nni_manager.programs.plain_values import plain

__all__ = [
    "choice",
    "lognormal",
    "loguniform",
    "normal",
    "qlognormal",
    "qloguniform",
    "qnormal",
    "quniform",
    "randint",
    "uniform",
]

Dimensions = Mapping[str, Mapping[str, Any]]


def uniform(low: float, high: float) -> dict[str, Any]:
    """A real number from `low` to `high`, each equally likely."""
    return _numeric("uniform", low=low, high=high)


def quniform(low: float, high: float, q: float) -> dict[str, Any]:
    """As `uniform`, rounded to a multiple of `q`, which is greater than 0."""
    return _numeric("quniform", low=low, high=high, q=q)


def loguniform(low: float, high: float) -> dict[str, Any]:
    """A real number from `low` to `high` whose logarithm is uniform. `low` is the number itself, greater than 0."""
    return _numeric("loguniform", low=low, high=high)


def qloguniform(low: float, high: float, q: float) -> dict[str, Any]:
    """As `loguniform`, rounded to a multiple of `q`, which is greater than 0."""
    return _numeric("qloguniform", low=low, high=high, q=q)


def normal(mu: float, sigma: float) -> dict[str, Any]:
    """A real number with mean `mu` and standard deviation `sigma`, which is greater than 0."""
    return _numeric("normal", mu=mu, sigma=sigma)


def qnormal(mu: float, sigma: float, q: float) -> dict[str, Any]:
    """As `normal`, rounded to a multiple of `q`, which is greater than 0."""
    return _numeric("qnormal", mu=mu, sigma=sigma, q=q)


def lognormal(mu: float, sigma: float) -> dict[str, Any]:
    """A number above 0 whose natural logarithm has mean `mu` and standard deviation `sigma`."""
    return _numeric("lognormal", mu=mu, sigma=sigma)


def qlognormal(mu: float, sigma: float, q: float) -> dict[str, Any]:
    """As `lognormal`, rounded to a multiple of `q`, which is greater than 0."""
    return _numeric("qlognormal", mu=mu, sigma=sigma, q=q)


def randint(low: int, high: int) -> dict[str, Any]:
    """A whole number from `low` to `high` - 1: `high` itself is excluded, as by NNI."""
    return _numeric("randint", low=low, high=high)


def choice(*options: Any) -> dict[str, Any]:
    """One of the options: ``choice("sgd", "adam")``, or one list, tuple, range, set or array of them.

    Options are numbers, text, booleans, None, or lists and dicts of them. A set is sorted. A dict makes a nested
    choice, whose branches have dimensions of their own::

        choice({"sgd": {"momentum": uniform(0, 1)}, "adam": {}})

    A trial gets the chosen branch as ``{"_name": "sgd", "momentum": 0.3}``. A list of dicts with ``_name`` does the
    same. Raises InvalidInput.
    """
    given = options[0] if len(options) == 1 and _is_collection(options[0]) else list(options)
    if isinstance(given, Mapping):
        given = [given] if "_name" in given else [_branch(name, inner) for name, inner in given.items()]
    values = plain(given, "choice: options")
    if values == []:
        raise InvalidInput("choice: options: none is given; give at least one")
    return _checked("choice", values if isinstance(values, list) else [values])


def _is_collection(option: object) -> bool:
    """Whether the only argument has the options, and is not one itself."""
    if isinstance(option, str | bytes):
        return False
    return isinstance(option, Mapping | Sequence | Set) or hasattr(option, "tolist") or hasattr(option, "__iter__")


def _branch(name: object, dimensions: Dimensions) -> dict[str, Any]:
    if not isinstance(name, str):
        raise InvalidInput(f"choice: options: the branch {name!r} must have a name of text")
    if not isinstance(dimensions, Mapping):
        raise InvalidInput(
            f"choice: options: the branch {name!r} must be a dict of dimensions, not {dimensions!r};"
            " for options without branches, use a list"
        )
    return {"_name": name, **dimensions}


def _numeric(kind: str, **arguments: object) -> dict[str, Any]:
    """The dimension with these arguments, in NNI's order."""
    values = {name: plain(value, f"{kind}: {name}") for name, value in arguments.items()}
    if kind == "randint":
        values = {name: _whole(value, name) for name, value in values.items()}
    return _checked(kind, list(values.values()))


def _whole(value: Any, name: str) -> Any:
    if isinstance(value, float) and not value.is_integer():
        raise InvalidInput(f"randint: {name} must be a whole number, but it is {value!r}")
    return int(value) if isinstance(value, float) else value


def _checked(kind: str, value: list[Any]) -> dict[str, Any]:
    """Raises InvalidInput with the names of the helper and of the argument."""
    dimension = {"_type": kind, "_value": value}
    try:
        search_space.parse({kind: dimension})
    except BadDimension as error:
        inner = "".join(f"{step}." for step in error.key[1:] if isinstance(step, str)).rstrip(".")
        reason = error.reason.removeprefix(f"{kind} ").replace(f" of {kind} ", " ", 1)
        raise InvalidInput(f"{kind}: {f'{inner}: ' if inner else ''}{reason}") from None
    return dimension
