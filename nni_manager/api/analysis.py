"""Queries about the trials of an experiment: filtered, sorted and summarised for tables and charts."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Request, Response
from pydantic import ConfigDict, Field

from nni_manager.analysis.query import Query
from nni_manager.api.context import Context, ExperimentId
from nni_manager.api.errors import documented
from nni_manager.api.schemas.daemon import Wire
from nni_manager.domain.trial_status import TrialStatus

router = APIRouter(prefix="/api/v1/experiments/{id}/analysis", tags=["trials"])


class Question(StrEnum):
    """The questions that `analysis.questions` knows."""

    COLUMNS = "columns"
    TRIALS = "trials"
    RESULTS = "results"
    CURVES = "curves"
    PARALLEL = "parallel"
    EFFECT = "effect"
    IMPORTANCE = "importance"
    PAIR = "pair"
    PARETO = "pareto"
    TIMELINE = "timeline"
    DISTRIBUTION = "distribution"
    FAILURES = "failures"
    TRIAL = "trial"


def _parameter(name: str, description: str, **schema: Any) -> dict[str, Any]:
    schema = {"type": "string", **schema}
    return {"name": name, "in": "query", "required": False, "description": description, "schema": schema}


_NUMBERS = "number, id, status, result, latest, duration, started, ended, place, p.NAME, m.KEY"
#: What `Query.parse` takes; p.NAME and m.KEY, which have no fixed names, are told with `q`.
_PARAMETERS = [
    _parameter("status", f"Only trials with one of these statuses, comma-separated: {', '.join(TrialStatus)}."),
    _parameter(
        "q",
        "Only trials whose id begins with this text, with this number, or with this text in their message. More"
        " filters: p.NAME=LOW..HIGH (both inclusive, each optional) or p.NAME=CHOICE,CHOICE for a parameter,"
        " m.KEY=LOW..HIGH for an entry of the final result. Names of nested parameters are joined by dots.",
    ),
    _parameter("failure", "Only trials of the failure group with this hash."),
    _parameter(
        "sort",
        f"One of {_NUMBERS}; a minus sorts in descending order. Missing values and NaN come last.",
        default="-number",
    ),
    _parameter("key", "Key of results that are objects; default: the first objective, else `default`."),
    _parameter(
        "direction", "Which results are better; default: the experiment's direction.", enum=["minimize", "maximize"]
    ),
    _parameter("top", "Number of best trials to highlight.", type="integer", minimum=1, maximum=100, default=20),
    _parameter("clip", "1, or 1.5 to 3: hide results worse than the quartiles by this number of interquartile ranges."),
    _parameter("selected", "Numbers of trials that are always drawn, comma-separated."),
    _parameter("x", "The x axis.", enum=["number", "elapsed", "clock"], default="number"),
    _parameter("page", "From 1.", type="integer", minimum=1, maximum=10**9, default=1),
    _parameter("limit", "Rows per page.", type="integer", minimum=1, maximum=1000, default=50),
    _parameter("parameter", "Name of a parameter; default: the most important ones."),
    _parameter("a", "Name of the first of two parameters, or of two objectives."),
    _parameter("b", "Name of the second of two parameters, or of two objectives."),
    _parameter("axes", "Names of parameters, comma-separated; default: the most important ones."),
    _parameter("number", "Number of a trial.", type="integer", minimum=0, maximum=10**12),
    _parameter("from", "Start of the range of the x axis, or of the time (milliseconds since the epoch)."),
    _parameter("to", "End of this range."),
]


class Analysis(Wire):
    """An answer; its other fields depend on the query."""

    model_config = ConfigDict(extra="allow")

    revision: str = Field(description="Revision of the experiment; answers of one revision are equal.")
    shown: int | None = Field(default=None, description="Number of trials drawn, if trials are drawn.")
    of: int | None = Field(default=None, description="Number of trials to draw.")
    not_numbers: int | None = Field(
        default=None, description="Number of trials whose final result is not a finite number."
    )
    clipped: int | None = Field(default=None, description="Number of trials hidden as outliers.")


@router.get(
    "/{question}",
    operation_id="analyseTrials",
    summary="Query the trials of an experiment",
    response_model=Analysis,
    responses={**documented(400, 404, 503), 304: {"description": "The answer has not changed since this ETag."}},
    openapi_extra={"parameters": _PARAMETERS},
)
async def ask(
    id: ExperimentId,
    question: Annotated[Question, Path(description="The query; docs/rest.md describes the answers.")],
    context: Context,
    request: Request,
    if_none_match: Annotated[str | None, Header(description="The ETag of a previous answer.")] = None,
) -> Response:
    """The server filters, sorts and summarises trials, so answers are small for any number of trials. Repeat the query
    with `If-None-Match` set to the `ETag` of the last answer: 304 means that nothing changed."""
    query = Query.parse((name, text) for name, text in request.query_params.multi_items() if name != "token")
    if if_none_match and _tag(revision := await context.analysis.revision(id)) in _tags(if_none_match):
        return Response(status_code=304, headers={"ETag": _tag(revision), "Cache-Control": "no-cache"})
    answer = await context.analysis.ask(id, question, query)
    # an answer that is still being computed has no tag
    tag = {"ETag": _tag(answer.revision)} if answer.is_settled else {}
    return Response(answer.text, media_type="application/json", headers={**tag, "Cache-Control": "no-cache"})


def _tag(revision: str) -> str:
    return f'"{revision}"'


def _tags(header: str) -> list[str]:
    """The tags of an If-None-Match header; a proxy that compresses makes them weak."""
    return [tag.strip().removeprefix("W/") for tag in header.split(",")]
