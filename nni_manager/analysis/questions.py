"""The questions, and the module that answers each."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, cast

from nni_manager.analysis.query import Query

if TYPE_CHECKING:  # it imports numpy, which the daemon does not
    from nni_manager.analysis.asked import Answerer

#: Question → module below `answers`.
QUESTIONS = {
    "columns": "columns",
    "trials": "rows",
    "results": "results",
    "curves": "curves",
    "parallel": "parallel",
    "effect": "effect",
    "importance": "importances",
    "pair": "pair",
    "pareto": "pareto",
    "timeline": "timeline",
    "distribution": "distribution",
    "failures": "failures",
    "trial": "one_trial",
}
#: Questions that are answered without parameters, unless the filter or the order names one.
_WITHOUT_PARAMETERS = ("trials", "results", "curves", "timeline", "distribution", "pareto")


def answerer(question: str) -> Answerer:
    """The function that answers. Its module is imported on first use."""
    module = importlib.import_module(f"nni_manager.analysis.answers.{QUESTIONS[question]}")
    return cast("Answerer", module.answer)


def needs_parameters(question: str, query: Query) -> bool:
    """Whether the columns of parameters are needed for an answer."""
    named = bool(query.parameters) or query.sort.removeprefix("-").startswith("p.")
    return named or question not in _WITHOUT_PARAMETERS
