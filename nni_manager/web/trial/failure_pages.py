"""The page of failures: a row for each way of failing, its example's log beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nni_manager.analysis.query import Query
from nni_manager.domain.errors import AnalysisUnavailable
from nni_manager.store.connection import Connection
from nni_manager.store.experiment import answers
from nni_manager.web.experiment_pages import render_tab
from nni_manager.web.rendering import PagesContext, context_of, experiment_id
from nni_manager.web.shared_pages import shared


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A way of failing, as the analysis groups it, and what its example wrote last."""

    group: Mapping[str, Any]
    #: Last lines of stderr of the example; may be empty.
    stderr: str


@shared
async def _failures(request: Request) -> Response:
    found, trouble = await _asked(request)
    failures = await with_examples(context_of(request), experiment_id(request), found["groups"])
    return await render_tab(
        request, "failures.html", tab="failures", failed=found["failed"], failures=failures, trouble=trouble
    )


async def with_examples(context: PagesContext, id: str, groups: Sequence[Mapping[str, Any]]) -> list[Failure]:
    """The groups of an answer to ``failures``, each with what its example wrote last."""
    examples = [group["example"] for group in groups]
    tails = await context.service.read(id, lambda c: [_stderr(c, example) for example in examples])
    return [Failure(group=group, stderr=stderr) for group, stderr in zip(groups, tails, strict=True)]


async def _asked(request: Request) -> tuple[dict[str, Any], str]:
    """The answer, and why there is none; empty: there is one."""
    try:
        answer = await context_of(request).analysis.ask(experiment_id(request), "failures", Query())
    except AnalysisUnavailable as error:
        return {"failed": 0, "groups": []}, str(error)
    return json.loads(answer.text), ""


def _stderr(connection: Connection, example: Mapping[str, Any]) -> str:
    attempts = json.loads(answers.trial(connection, example["id"]))["attempts"]
    tails = [str(attempt["stderrTail"]) for attempt in attempts if attempt["number"] == example["attempt"]]
    return tails[0].strip("\n") if tails else ""


ROUTES = [Route("/experiments/{id}/failures", _failures)]
