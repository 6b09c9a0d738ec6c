"""The queries, and the function that answers each."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, cast

from nni_manager.analysis.query import Query

if TYPE_CHECKING:  # it imports numpy, which the daemon must not import
    from nni_manager.analysis.selection import Answerer

#: Question → module below `answers`, and the function in it.
QUESTIONS = {
    "columns": ("columns", "answer"),
    "trials": ("rows", "page"),
    "results": ("results", "results"),
    "curves": ("curves", "answer"),
    "parallel": ("parameters", "parallel"),
    "effect": ("parameters", "effect"),
    "importance": ("parameters", "importance_of_each"),
    "pair": ("parameters", "pair"),
    "pareto": ("pareto", "answer"),
    "timeline": ("timeline", "answer"),
    "distribution": ("results", "distribution"),
    "failures": ("failures", "answer"),
    "trial": ("rows", "one_trial"),
}
#: Questions about the whole experiment: their answer is the same for every query.
WHOLE = frozenset({"columns"})
#: Questions that are answered without parameters, unless the filter or the order names one.
_WITHOUT_PARAMETERS = ("trials", "results", "curves", "timeline", "distribution", "pareto")


def answerer(question: str) -> Answerer:
    """The function that answers. Its module is imported on first use."""
    module, function = QUESTIONS[question]
    return cast("Answerer", getattr(importlib.import_module(f"nni_manager.analysis.answers.{module}"), function))


def needs_parameters(question: str, query: Query) -> bool:
    """Whether the columns of parameters are needed for an answer."""
    named = bool(query.parameters) or query.sort.removeprefix("-").startswith("p.")
    return named or question not in _WITHOUT_PARAMETERS
