"""NNI's REST API for all experiments in one application: at an endpoint's root, or below a prefix on the service.

Errors are ``{"error": "<sentence>"}`` with 400, 404 or 409. NNI answers 500, hangs or ends its process.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from nni_manager.api.context import ApiContext
from nni_manager.api.errors import AsciiJson, Barrier, headers_of, sentence_of
from nni_manager.api.nni import experiment, files, status
from nni_manager.api.nni.addressed import ROOT, addressed, require_known
from nni_manager.api.nni.trials import MOST_KEPT_OF_CLOSED, ListCache, MetricAnswers, TrialAnswers
from nni_manager.domain.errors import NniManagerError, status_of

#: Answers a request about an experiment: the request, the parts of the daemon, the experiment's id.
Endpoint = Callable[[Request, ApiContext, str], Awaitable[Response]]
#: Path below the API's root → method → endpoint.
Table = Mapping[str, Mapping[str, Endpoint]]


def create_nni_application(context: ApiContext) -> ASGIApp:
    """Serves ``/api/v1/nni/…`` and ``/logs/<file>`` of the experiment in ``scope["state"]``, see `addressed`."""
    statuses = status.StatusAnswers(context)
    answers = Starlette(
        routes=[*_routes(_table(statuses)), Route("/logs/{name}", files.log_file)],
        exception_handlers={NniManagerError: _on_domain_error, HTTPException: _on_http_error},
        middleware=[Middleware(Barrier)],
    )
    answers.router.redirect_slashes = False
    answers.state.context = context

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        if not await statuses.answer_at_once(scope, send):
            path: str = scope["path"]
            has_last_slash = path.endswith("/") and path.startswith(ROOT)
            await answers({**scope, "path": path[:-1]} if has_last_slash else scope, receive, send)

    return application


def _table(statuses: status.StatusAnswers) -> Table:
    cache = ListCache(MOST_KEPT_OF_CLOSED)
    trials, metrics = TrialAnswers(cache), MetricAnswers(cache)
    return {
        "version": {"GET": _version},
        "check-status": {"GET": statuses.show},
        "experiment": {
            "GET": experiment.show,
            "POST": experiment.start,
            "PUT": experiment.change,
            "DELETE": experiment.stop,
        },
        "experiment/import-data": {"POST": experiment.import_data},
        "experiment/imported-data": {"GET": experiment.imported_data},
        "experiment/cluster-metadata": {"PUT": experiment.set_cluster_metadata},
        "experiment-metadata": {"GET": status.show_metadata},
        "experiments-info": {"GET": status.list_metadata},
        "job-statistics": {"GET": trials.statistics},
        "trial-jobs": {"GET": trials.list_all, "POST": trials.add},
        "trial-jobs/{id}": {"GET": trials.show, "DELETE": trials.kill},
        "metric-data": {"GET": metrics.list_all},
        "metric-data/{id}": {"GET": metrics.of_trial},
        "metric-data-range/{first}/{last}": {"GET": metrics.of_range},
        "metric-data-latest": {"GET": metrics.latest},
        "trial-file/{id}/{name}": {"GET": files.trial_file},
        "export-data": {"GET": metrics.export},
        "tensorboard": {"POST": files.start_tensorboard},
        "tensorboard/{id}": {
            "GET": files.show_tensorboard,
            "PUT": files.show_tensorboard,
            "DELETE": files.stop_tensorboard,
        },
        "tensorboard-tasks": {"GET": files.list_tensorboards, "DELETE": files.stop_tensorboards},
    }


def _routes(table: Table) -> Iterator[BaseRoute]:
    for path, endpoints in table.items():
        methods = [*endpoints, *(["HEAD"] if "GET" in endpoints else []), "OPTIONS"]
        yield Route(f"{ROOT}/{path}", _dispatch(endpoints, ", ".join(methods)), methods=methods)


def _dispatch(endpoints: Mapping[str, Endpoint], allowed: str) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        if method == "OPTIONS":
            return PlainTextResponse(allowed, headers={"Allow": allowed})
        context, id_ = addressed(request)
        await require_known(context, id_)  # also for routes with the same answer for all experiments
        return await endpoints[method](request, context, id_)

    return answer


async def _version(_: Request, context: ApiContext, id_: str) -> Response:
    """The version as bare text with JSON's content type, as NNI's page requires.

    It has three parts, because NNI's page parses a version with two as a number and fails.
    """
    version = context.version
    return Response(version + ".0" * (2 - version.count(".")), media_type="application/json")


async def _on_domain_error(_: Request, error: Exception) -> Response:
    return AsciiJson({"error": str(error)}, status_of(error))


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return AsciiJson({"error": sentence_of(request, error)}, error.status_code, headers=headers_of(request, error))
