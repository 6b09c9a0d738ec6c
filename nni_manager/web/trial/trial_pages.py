"""The page of one trial, its files, the forms that run it again, and the page of failures.

A trial's page is also the drawer next to the table. The page of failures has a row for each kind of failure, with the
log of an example.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nni_manager.analysis.query import Query
from nni_manager.domain.errors import AnalysisUnavailable, NniManagerError, NotFound
from nni_manager.store.connection import Connection
from nni_manager.store.experiment import answers
from nni_manager.web.context import PagesContext
from nni_manager.web.experiment_pages import render_tab
from nni_manager.web.rendering import ask, context_of, experiment_id, form_of, render, to_experiment
from nni_manager.web.shared_pages import shared
from nni_manager.web.shown_experiments import shown as shown_experiment
from nni_manager.web.trial import custom_trial, log_page, shown_trial
from nni_manager.web.trial.custom_trial import TrialForm
from nni_manager.web.trial.shown_trial import ShownTrial

#: Seconds to wait for the trial's rank: with many trials the first request computes it.
_PLACE_S = 2.0


@shared
async def _page(request: Request) -> Response:
    """The page, or with ``?drawer=1`` the content of the drawer."""
    trial = await _shown(request)
    log = await log_page.opened(request, trial)
    if request.query_params.get("drawer") == "1":
        found = await shown_experiment(context_of(request), experiment_id(request))
        return render(request, "trial_drawer.html", shown=found, trial=trial, log=log)
    return await render_tab(request, "trial.html", tab="trials", trial=trial, log=log)


async def _file(request: Request) -> Response:
    context, id_ = context_of(request), experiment_id(request)
    trial_id = await context.commands.read(id_, lambda c: shown_trial.trial_id(c, request.path_params["trial"]))
    trials = (await context.commands.entry(id_)).folder.trials
    attempt = request.path_params["attempt"]
    if not (attempt.isascii() and attempt.isdecimal() and len(attempt) < 10):
        raise NotFound(f"{attempt!r} is not an attempt number")
    return await shown_trial.download(trials, trial_id, int(attempt), request.path_params["path"])


async def _again(request: Request) -> Response:
    row = await _row(request, request.path_params["trial"])
    return await _run(request, row["parameters"], row["id"])


async def _form(request: Request) -> Response:
    """The form of a new trial; with ``?like=17``, filled with the parameters of that trial."""
    origin = await _origin(request)
    parameters = origin["parameters"] if origin else None
    return await _render_form(request, custom_trial.prefilled(await _space(request), parameters), origin)


async def _sent(request: Request) -> Response:
    """Run the submitted parameters, or show the form with its errors."""
    origin, fields = await _origin(request), await form_of(request)
    form = {name: values[-1] for name, values in fields.items()}
    found = custom_trial.sent(await _space(request), origin["parameters"] if origin else None, form)
    if not found.may_run:
        return await _render_form(request, found, origin, HTTPStatus.BAD_REQUEST)
    return await _run(request, found.parameters, origin["id"] if origin else "")


async def _run(request: Request, parameters: object, repeats: str) -> Response:
    added = await context_of(request).commands.add_trial(experiment_id(request), parameters, repeats)
    return to_experiment(request, f"/trials/{added['sequenceId']}")


async def _render_form(
    request: Request, form: TrialForm, origin: Mapping[str, Any] | None, status: int = HTTPStatus.OK
) -> Response:
    unnamed = json.dumps(form.kept, ensure_ascii=False) if form.kept else ""
    return await render_tab(
        request, "new_trial.html", tab="trials", status=status, form=form, origin=origin, unnamed=unnamed
    )


async def _shown(request: Request) -> ShownTrial:
    context, id_, trial = context_of(request), experiment_id(request), request.path_params["trial"]
    place = await _place(request, (await _row(request, trial))["sequenceId"])
    return await shown_trial.shown(context.commands, id_, trial, place, context.clock())


async def _place(request: Request, number: int) -> dict[str, Any]:
    """Its rank among all trials; empty if that cannot be computed now."""
    try:
        async with asyncio.timeout(_PLACE_S):
            return await ask(request, "trial", Query(number=number))
    except (NniManagerError, TimeoutError):
        return {}


async def _row(request: Request, trial: str) -> dict[str, Any]:
    """The API's answer about a trial. Raises NotFound."""
    read = await context_of(request).commands.read(
        experiment_id(request), lambda c: answers.trial(c, shown_trial.trial_id(c, trial))
    )
    return dict(json.loads(read))


async def _origin(request: Request) -> dict[str, Any] | None:
    like = request.query_params.get("like", "")
    return await _row(request, like) if like else None


async def _space(request: Request) -> object:
    found = await shown_experiment(context_of(request), experiment_id(request))
    return found.overview.config.get("searchSpace")


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A kind of failure, as the analysis groups it, with the end of an example's stderr."""

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
    """The groups of an answer to ``failures``, each with the end of its example's stderr."""
    examples = [group["example"] for group in groups]
    tails = await context.commands.read(id, lambda c: [_stderr(c, example) for example in examples])
    return [Failure(group=group, stderr=stderr) for group, stderr in zip(groups, tails, strict=True)]


async def _asked(request: Request) -> tuple[dict[str, Any], str]:
    """The answer, and why it is missing; empty: it is not missing."""
    try:
        return await ask(request, "failures", Query()), ""
    except AnalysisUnavailable as error:
        return {"failed": 0, "groups": []}, str(error)


def _stderr(connection: Connection, example: Mapping[str, Any]) -> str:
    attempts = json.loads(answers.trial(connection, example["id"]))["attempts"]
    tails = [str(attempt["stderrTail"]) for attempt in attempts if attempt["number"] == example["attempt"]]
    return tails[0].strip("\n") if tails else ""


_HERE = "/experiments/{id}/trials"
ROUTES = [
    Route(f"{_HERE}/new", _form),
    Route(f"{_HERE}/new", _sent, methods=["POST"]),
    Route(f"{_HERE}/{{trial}}", _page),
    Route(f"{_HERE}/{{trial}}/again", _again, methods=["POST"]),
    Route(f"{_HERE}/{{trial}}/files/{{attempt}}/{{path:path}}", _file),
    Route("/experiments/{id}/failures", _failures),
]
