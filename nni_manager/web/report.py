"""The report of an experiment: one HTML file that needs no server.

It has about 2 MB of scripts and a few hundred kB of data. Its charts are those of the page, drawn from answers that the
file contains. All text is in its HTML, so it can be read without scripts.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import posixpath
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from nni_manager.analysis.query import Query
from nni_manager.analysis.service import Analysis
from nni_manager.config.secrets import mask
from nni_manager.domain.metrics import OptimizeMode
from nni_manager.domain.trial_status import TrialStatus
from nni_manager.store.experiment import experiments
from nni_manager.web import config_page, shown_experiments, static_files
from nni_manager.web.context import PagesContext
from nni_manager.web.rendering import environment
from nni_manager.web.shown_experiments import ShownExperiment
from nni_manager.web.static_files import OWN
from nni_manager.web.trial.trial_pages import Failure, with_examples

#: Maximum numbers of best trials, of kinds of failure, and of characters of an example's stderr.
_MOST_BEST, _MOST_FAILURES, _MOST_STDERR = 20, 50, 4000
_STYLES = ("light.css", "style.css", "pages.css", "trial.css", "charts.css", "report/report.css")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Contents:
    shown: ShownExperiment
    best: list[Mapping[str, Any]]
    failures: list[Failure]
    #: Number of failed trials, and of kinds of failure.
    failed: tuple[int, int]
    config: Mapping[str, Any]
    origin: Mapping[str, Any] | None
    answers: Mapping[str, Any]


async def build(context: PagesContext, id: str) -> bytes:
    """The report as HTML. Raises NotFound, StoreError, AnalysisUnavailable."""
    await context.commands.provenance.settled(id)
    contents = await _contents(context, id)
    return await asyncio.to_thread(_rendered, contents, context.clock(), context.version)


async def _contents(context: PagesContext, id: str) -> _Contents:
    shown = await shown_experiments.shown(context, id)
    objectives = list(shown.overview.summary.objectives)
    answers = await collect(context.analysis, id, objectives)
    failures = await ask(context.analysis, id, "failures", Query())
    return _Contents(
        shown=shown,
        best=[] if objectives else await _best(context, id, shown),
        failures=await with_examples(context, id, failures["groups"][:_MOST_FAILURES]),
        failed=(failures["failed"], len(failures["groups"])),
        config=mask(shown.overview.config),
        origin=await context.commands.read(id, experiments.provenance),
        answers=answers,
    )


async def _best(context: PagesContext, id: str, shown: ShownExperiment) -> list[Mapping[str, Any]]:
    order = "-result" if shown.overview.summary.optimize_mode is OptimizeMode.MAXIMIZE else "result"
    query = Query(status=(TrialStatus.SUCCEEDED,), sort=order, limit=_MOST_BEST)
    return list((await ask(context.analysis, id, "trials", query))["rows"])


def _rendered(contents: _Contents, now_ms: int, version: str) -> bytes:
    columns, pareto = contents.answers["asked"][0]["answer"], contents.shown.overview.summary.pareto_set
    text = (
        environment()
        .get_template("report.html")
        .render(
            shown=contents.shown,
            best=contents.best,
            pareto_trials=pareto.trials if pareto is not None else (),
            failures=contents.failures,
            failed=contents.failed,
            dimensions=[config_page.dimension(one) for one in columns["parameters"]],
            config_text=json.dumps(contents.config, indent=2, ensure_ascii=False),
            origin=contents.origin,
            most_stderr=_MOST_STDERR,
            made_ms=now_ms,
            version=version,
            nonce=secrets.token_urlsafe(16),
            styles=_own(*_STYLES),
            dark_style=_own("dark.css"),
            theme_script=_own("theme.js"),
            import_map=import_map(),
            begin=BEGIN,
            answers=_packed(json.dumps(contents.answers).encode()),
            plotly=_packed_plotly(),
        )
    )
    return text.encode(errors="backslashreplace")


def _packed(data: bytes) -> str:
    """Compressed and encoded as letters, so that the text cannot close its HTML element."""
    return base64.b64encode(gzip.compress(data, 6, mtime=0)).decode()


@cache
def _packed_plotly() -> str:
    return base64.b64encode(static_files.compressed()).decode()


@cache
def _own(*names: str) -> str:
    """The text of our own static files, which do not contain the end tag of their element."""
    return "\n".join((static_files.OWN / name).read_text(encoding="utf-8") for name in names)


_QUESTIONS = ("columns", "results", "curves", "parallel", "effect", "importance", "timeline", "distribution")
#: Maximum numbers of parameters with a separate effect chart, and of parameters and objectives compared in pairs.
_MOST_EFFECTS, _MOST_PAIRED = 12, 4
#: Interval in seconds and maximum number of repeated questions while an answer is being computed.
_AGAIN_S, _TIMES = 0.25, 40

Answers = dict[str, Any]


async def collect(analysis: Analysis, id: str, objectives: Sequence[str] = ()) -> Answers:
    """The answers that a report contains, limited like those of the page: a sample if there are many trials.

    ``asked``: a list of {question, choice, answer}; of each question, the one without a choice comes first.
    ``charted``: chart → parameters that can be chosen there. Raises NotFound, AnalysisUnavailable.
    """
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
    """The answer when its computation has finished, or as it is after some seconds."""
    for _ in range(_TIMES):
        answer = await analysis.ask(id, question, query)
        if answer.is_settled:
            break
        await asyncio.sleep(_AGAIN_S)  # the process sends no events
    return json.loads(answer.text)


def _by_importance(found: Answers) -> list[str]:
    present = [one["name"] for one in found["columns"]["parameters"] if one["present"]]
    order = [one["name"] for one in found["importance"]["importances"]]
    return [name for name in dict.fromkeys([*order, *present]) if name in present]


def _pairs(names: Sequence[str]) -> Iterable[Query]:
    return (Query(a=a, b=b) for a in names for b in names if a != b)


#: The first module of the report. A page opened from a file cannot load modules from other files, so an import map
#: contains the chart modules, by their path below ``static``. Modules that call the manager are replaced.
_BEGIN = "report/begin.js"
#: Module of the page → module that replaces it in the report.
_REPLACED = {
    "live.js": "report/live.js",
    "state.js": "report/state.js",
    "charts/feed.js": "report/feed.js",
    "charts/opening.js": "report/opening.js",
    "charts/columns.js": "report/columns.js",
}
_IMPORT = re.compile(r"(?<=\bfrom )\"(\.{1,2}/[^\"]+)\"")
#: Prefix of module names in a report.
_PREFIX = "report:"

BEGIN = _PREFIX + _BEGIN


@cache
def import_map() -> str:
    """JSON of the import map: the first module and all its imports, by path."""
    found: dict[str, str] = {}
    waiting = [_BEGIN]
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        text = (OWN / path).read_text(encoding="utf-8")
        needed = {name: _resolved(path, name) for name in _IMPORT.findall(text)}
        for name, module in needed.items():
            text = text.replace(f'from "{name}"', f'from "{_PREFIX}{module}"')
        found[path] = text
        waiting += needed.values()
    return json.dumps({"imports": {_PREFIX + path: _address(text) for path, text in sorted(found.items())}})


def _resolved(importer: str, name: str) -> str:
    path = posixpath.normpath(posixpath.join(posixpath.dirname(importer), name))
    return _REPLACED.get(path, path)


def _address(text: str) -> str:
    return f"data:text/javascript;base64,{base64.b64encode(text.encode()).decode()}"
