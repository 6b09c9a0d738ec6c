"""Advice about a final result that cannot be compared with others."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from nni_manager.domain.metrics import default_number
from nni_manager.domain.results import direction
from nni_manager.domain.results.final_result import ReportedResult, Usability
from nni_manager.domain.text import printable

#: Built-in tuners that search for objectives; without a tuner, TPE does.
SEARCHING_OBJECTIVES = frozenset(("", "TPE", "NSGA2", "Random"))
#: Characters of a result that a sentence repeats.
_EXCERPT = 120


def advice(reported: ReportedResult, config: Mapping[str, Any], class_default: str = "") -> str:
    """The problem of an unusable result, and the next step; always printable.

    `config`: the experiment's, canonical; `class_default`: as in `direction.find`.
    """
    return printable(_advice(reported, config, class_default))


def _advice(reported: ReportedResult, config: Mapping[str, Any], class_default: str) -> str:
    if reported.final is None:
        only = f", only {reported.intermediates} intermediate" if reported.intermediates else ""
        return f"no final result was reported{only}: call nni.report_final_result with a number"
    value, objectives = reported.value, config.get("objectives") or {}
    shown = f"results are {_shown(value)}"
    if reported.usability(objectives) is Usability.NOT_FINITE:
        return f"{shown}: NaN and infinity are never the best; report finite numbers"
    if objectives:
        return f"{shown}: {_missing(value, objectives)}"
    if isinstance(value, Mapping):
        return f"{shown}: {_without_default(value, config, class_default)}"
    return f"{shown}: report a number{', not text' if isinstance(value, str) else ''}"


def _missing(value: object, objectives: Mapping[str, Any]) -> str:
    given = value if isinstance(value, Mapping) else {"default": value}
    missing = [key for key in objectives if default_number(given.get(key)) is None]
    what = f"the objective {missing[0]} has" if len(missing) == 1 else f"the objectives {', '.join(missing)} have"
    return f"{what} no number; report a number under each key of objectives, or change objectives"


def _without_default(value: Mapping[str, Any], config: Mapping[str, Any], class_default: str) -> str:
    if "default" in value:
        return "report a number under the key `default`"
    keys = [key for key in value if default_number(value[key]) is not None]
    if not keys:
        return "report a number under the key `default`"
    tuner = config.get("tuner") or config.get("advisor") or {}
    searches = not tuner.get("className") and tuner.get("name", "") in SEARCHING_OBJECTIVES
    other_tuner = "" if searches else "tuner: {name: TPE} and "
    objectives = f"objectives: {{{keys[0]}: {direction.find(config, class_default).mode}}}"
    return f"report the key `default`, or set {other_tuner}{objectives}"


def _shown(value: object) -> str:
    """A result in the format of a config, on one line."""
    if isinstance(value, Mapping):
        text = "{" + ", ".join(f"{key}: {json.dumps(entry, ensure_ascii=False)}" for key, entry in value.items()) + "}"
    else:
        text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _EXCERPT else f"{text[:_EXCERPT]}…"
