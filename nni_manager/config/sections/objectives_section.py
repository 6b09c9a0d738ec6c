"""The fields `objectives` and `constraints` → their canonical form, and the algorithms that cannot go with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from nni_manager.config.reading.scalars import kind, mapping
from nni_manager.config.reading.source import Source
from nni_manager.config.sections.section import Section
from nni_manager.domain.algorithm import Algorithm
from nni_manager.domain.metrics import OptimizeMode
from nni_manager.domain.objectives import parse_constraint
from nni_manager.tuners.registry import CATALOGUE as TUNERS

_OBJECTIVES, _CONSTRAINTS = "objectives", "constraints"
_EXAMPLE = "objectives: {accuracy: maximize, latency: minimize}"


def read_objectives(top: Section, source: Source) -> dict[str, object]:
    """The canonical fields that the config sets; what is wrong with them is noted in `source`."""
    objectives = _read(top, _OBJECTIVES, _direction, source)
    constraints = _read(top, _CONSTRAINTS, lambda raw: str(parse_constraint(raw)), source)
    if top.has(_CONSTRAINTS) and not top.has(_OBJECTIVES):
        top.refuse(_CONSTRAINTS, f"belongs to objectives, which is not set; add for example {_EXAMPLE}")
    return {name: found for name, found in ((_OBJECTIVES, objectives), (_CONSTRAINTS, constraints)) if found}


def _read(top: Section, name: str, parse: Callable[[object], str], source: Source) -> dict[str, str]:
    given = top.take(name, _not_empty) or {}
    found: dict[str, str] = {}
    for key, raw in given.items():
        try:
            found[_key(key)] = parse(raw)
        except ValueError as error:
            source.refuse((name, key), str(error))
    return found


def _not_empty(raw: object) -> dict[str, object]:
    given = mapping(raw)
    if not given:
        raise ValueError("is empty; name a key of the final results, or remove this field")
    return given


def _key(key: object) -> str:
    if not isinstance(key, str) or not key.strip():
        raise ValueError("must be a key of the final results")
    return key


def _direction(raw: object) -> str:
    if not isinstance(raw, str):
        raise ValueError(f"must be maximize or minimize, not {kind(raw)}")
    if raw not in tuple(OptimizeMode):
        raise ValueError(f"must be maximize or minimize, not {raw!r}")
    return raw


def judge_algorithms(top: Section, fields: Mapping[str, Any], source: Source) -> None:
    """Notes a tuner that cannot go with the objectives, or not without, and an assessor beside objectives."""
    if source.stored:
        return
    place = "advisor" if top.has("advisor") else "tuner"
    tuner = fields.get("tuner") or {}
    known = TUNERS.look_up(tuner["name"]) if "name" in tuner else None
    if not top.has(_OBJECTIVES):
        if known is not None and known.needs_objectives:
            source.refuse((place, "name"), f"{known.name} searches for objectives; add for example {_EXAMPLE}")
        return
    if tuner:
        _judge_tuner(place, tuner, known, source)
    if top.has("assessor"):
        top.refuse("assessor", "judges trials by one number, and objectives is given too; remove this field")


def _judge_tuner(place: str, tuner: Mapping[str, Any], known: Algorithm | None, source: Source) -> None:
    if "className" in tuner or (known is not None and not known.with_objectives):
        name = tuner.get("name") or tuner["className"]
        choice = ", ".join(one.name for one in TUNERS.built_in if one.with_objectives)
        source.refuse((place,), f"{name} goes by one number, and objectives is given too; use one of {choice}")
    elif "optimize_mode" in (tuner.get("classArgs") or {}):
        source.refuse((place, "classArgs", "optimize_mode"), "objectives says the directions; remove this argument")
