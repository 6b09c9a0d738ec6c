"""The answers about trials that a report holds, by the names under which its charts look for them.

Each is bounded, as those of the page are: of many trials a sample is drawn.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Sequence
from typing import Any

from nni_manager.analysis.query import Query
from nni_manager.analysis.service import Analysis

_QUESTIONS = ("columns", "results", "curves", "parallel", "effect", "importance", "timeline", "distribution")
#: Parameters whose effect can be chosen alone; parameters and objectives of which each two can be compared.
_MOST_EFFECTS, _MOST_PAIRED = 12, 4
#: What is being computed is asked for again, in seconds, and so often.
_AGAIN_S, _TIMES = 0.25, 40

Answers = dict[str, Any]


async def collect(analysis: Analysis, id: str, objectives: Sequence[str] = ()) -> Answers:
    """``asked``: a list of {question, choice, answer}, the one without a choice before others of its question;
    ``charted``: chart → parameters that can be chosen there. Raises NotFound, AnalysisUnavailable."""
    questions = [*_QUESTIONS, "pareto"] if len(objectives) > 1 else _QUESTIONS
    found = {question: await ask(analysis, id, question, Query()) for question in questions}
    names = _by_importance(found)
    effects, paired = names[:_MOST_EFFECTS], names[:_MOST_PAIRED]
    chosen = [("effect", Query(parameter=name)) for name in effects] + [("pair", query) for query in _pairs(paired)]
    if len(objectives) > 1:
        chosen += [("pareto", query) for query in _pairs(objectives[:_MOST_PAIRED])]
    asked = [{"question": question, "choice": {}, "answer": answer} for question, answer in found.items()]
    for question, query in chosen:
        answer = await ask(analysis, id, question, query)
        asked.append({"question": question, "choice": dict(query.pairs()), "answer": answer})
    return {"asked": asked, "charted": {"effect": effects, "pair": paired}}


async def ask(analysis: Analysis, id: str, question: str, query: Query) -> Any:
    """The answer, once nothing in it is being computed any more; after some seconds as it is then."""
    for _ in range(_TIMES):
        answer = await analysis.ask(id, question, query)
        if answer.is_settled:
            break
        await asyncio.sleep(_AGAIN_S)  # the process tells nothing by itself
    return json.loads(answer.text)


def _by_importance(found: Answers) -> list[str]:
    """Names of the parameters that trials have, the most important first."""
    present = [one["name"] for one in found["columns"]["parameters"] if one["present"]]
    order = [one["name"] for one in found["importance"]["importances"]]
    return [name for name in dict.fromkeys([*order, *present]) if name in present]


def _pairs(names: Sequence[str]) -> Iterable[Query]:
    return (Query(a=a, b=b) for a in names for b in names if a != b)
