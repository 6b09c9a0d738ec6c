"""The check of a search space."""

from __future__ import annotations

import logging

TYPE_CHECKING = False  # `typing` is slow to import and only checkers need it
if TYPE_CHECKING:
    from typing import Any, List, Optional

common_search_space_types = [
    prefix + kind for kind in ("uniform", "loguniform", "normal", "lognormal") for prefix in ("", "q")
] + ["choice", "randint"]


def validate_search_space(
    search_space: Any, support_types: Optional[List[str]] = None, raise_exception: bool = False
) -> bool:
    """Whether the search space is one of these types (all of NNI's by default), with values that fit them.

    What is wrong is logged, or raised as ValueError.
    """
    try:
        if not isinstance(search_space, dict):
            raise ValueError("The search space has to be a dict, not {!r}.".format(search_space))
        for name, spec in search_space.items():
            complaint = _complaint(spec, common_search_space_types if support_types is None else support_types)
            if complaint:
                raise ValueError("The search space of {!r} {}: {!r}.".format(name, complaint, spec))
    except ValueError as error:
        if raise_exception:
            raise
        logging.getLogger(__name__).error("%s", error)
        return False
    return True


def _complaint(spec: Any, types: List[str]) -> str:
    """What is wrong with one dimension; empty: nothing."""
    if not isinstance(spec, dict) or "_type" not in spec or "_value" not in spec:
        return "has to be a dict with _type and _value"
    kind, values = spec["_type"], spec["_value"]
    if kind not in types:
        return "has a type that is not one of " + ", ".join(types)
    if not isinstance(values, list):
        return "needs a list as _value"
    return _complaint_of_choice(values) if kind == "choice" else _complaint_of_numbers(kind, values)


def _complaint_of_choice(values: List[Any]) -> str:
    is_nested = bool(values) and isinstance(values[0], dict) and "_name" in values[0]
    is_plain = all(isinstance(value, (float, int, str)) for value in values)
    return "" if is_plain or is_nested else "has a choice that is neither number nor text"


def _complaint_of_numbers(kind: str, values: List[Any]) -> str:
    count = 3 if kind.startswith("q") else 2
    number = int if kind == "randint" else (float, int)
    if len(values) != count:
        return "needs {} values".format(count)
    if not all(isinstance(value, number) for value in values):
        return "needs whole numbers" if kind == "randint" else "needs numbers"
    low, high = values[:2]
    if "normal" in kind:
        return "" if high > 0 else "needs a standard deviation above 0"
    if low >= high:
        return "needs a lower bound that is below the upper one"
    return "needs a lower bound above 0" if "log" in kind and low <= 0 else ""
