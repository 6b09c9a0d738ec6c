"""Makes the report of an experiment: a page without a server, about two megabytes and a few hundred kilobytes of data.

The charts are the page's own, drawn from answers that the report holds; what people read is in its HTML, so that it can
be read without scripts, too.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from nni_manager.analysis.query import Query
from nni_manager.config.masking import mask
from nni_manager.domain.metrics import OptimizeMode
from nni_manager.domain.trial import TrialStatus
from nni_manager.store.experiment import experiments
from nni_manager.web import shown_experiments, static_files
from nni_manager.web.experiment import config_page
from nni_manager.web.rendering import PagesContext, environment
from nni_manager.web.report import chart_answers, modules
from nni_manager.web.shown_experiments import ShownExperiment
from nni_manager.web.trial.failure_pages import Failure, with_examples

#: Best trials, ways of failing, and characters of an example's stderr that a report has.
_MOST_BEST, _MOST_FAILURES, _MOST_STDERR = 20, 50, 4000
_STYLES = ("light.css", "style.css", "pages.css", "trial.css", "charts.css", "report/report.css")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Contents:
    """All that a report says."""

    shown: ShownExperiment
    best: list[Mapping[str, Any]]
    failures: list[Failure]
    #: Number of trials that failed, and of ways of failing.
    failed: tuple[int, int]
    config: Mapping[str, Any]
    origin: Mapping[str, Any] | None
    answers: Mapping[str, Any]


async def build(context: PagesContext, id: str) -> bytes:
    """The report as HTML. Raises NotFound, StoreError, AnalysisUnavailable."""
    await context.service.provenance.settled(id)
    contents = await _contents(context, id)
    return await asyncio.to_thread(_rendered, contents, context.clock(), context.version)


async def _contents(context: PagesContext, id: str) -> _Contents:
    shown = await shown_experiments.shown(context, id)
    objectives = list(shown.overview.summary.objectives)
    answers = await chart_answers.collect(context.analysis, id, objectives)
    failures = await chart_answers.ask(context.analysis, id, "failures", Query())
    return _Contents(
        shown=shown,
        best=[] if objectives else await _best(context, id, shown),
        failures=await with_examples(context, id, failures["groups"][:_MOST_FAILURES]),
        failed=(failures["failed"], len(failures["groups"])),
        config=mask(shown.overview.config),
        origin=await context.service.read(id, experiments.provenance),
        answers=answers,
    )


async def _best(context: PagesContext, id: str, shown: ShownExperiment) -> list[Mapping[str, Any]]:
    order = "-result" if shown.overview.summary.optimize_mode is OptimizeMode.MAXIMIZE else "result"
    query = Query(status=(TrialStatus.SUCCEEDED,), sort=order, limit=_MOST_BEST)
    rows: list[Mapping[str, Any]] = (await chart_answers.ask(context.analysis, id, "trials", query))["rows"]
    return rows


def _pareto_trials(shown: ShownExperiment) -> tuple[Any, ...]:
    found = shown.overview.summary.pareto_set
    return found.trials if found is not None else ()


def _rendered(contents: _Contents, now_ms: int, version: str) -> bytes:
    columns = contents.answers["asked"][0]["answer"]
    text = (
        environment()
        .get_template("report.html")
        .render(
            shown=contents.shown,
            best=contents.best,
            pareto_trials=_pareto_trials(contents.shown),
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
            import_map=modules.import_map(),
            begin=modules.BEGIN,
            answers=_packed(json.dumps(contents.answers).encode()),
            plotly=_packed_plotly(),
        )
    )
    return text.encode(errors="backslashreplace")


def _packed(data: bytes) -> str:
    """Compressed and as letters, so that nothing in it can end the element that holds it."""
    return base64.b64encode(gzip.compress(data, 6, mtime=0)).decode()


@cache
def _packed_plotly() -> str:
    return base64.b64encode(static_files.compressed()).decode()


@cache
def _own(*names: str) -> str:
    """The text of files of ours, which hold no end of the element that they are put into."""
    return "\n".join((static_files.OWN / name).read_text(encoding="utf-8") for name in names)
