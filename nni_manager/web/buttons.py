"""The buttons of an experiment's pages: forms that are sent, and answered with a redirect to where they were."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nni_manager.domain.errors import NotFound
from nni_manager.domain.ids import TRIAL_ID
from nni_manager.web.rendering import back, context_of, experiment_id, is_on_endpoint, render


async def _stop(request: Request) -> Response:
    """Answers when its trials have ended. An endpoint closes with its experiment, so there is no page to return to."""
    await context_of(request).service.stop(experiment_id(request))
    if is_on_endpoint(request):
        return render(request, "closed.html", id=experiment_id(request))
    return await back(request)


async def _resume(request: Request) -> Response:
    await context_of(request).service.resume(experiment_id(request))
    return await back(request)


async def _kill(request: Request) -> Response:
    id_, trial_id = experiment_id(request), request.path_params["trial_id"]
    if TRIAL_ID.fullmatch(trial_id) is None:
        raise NotFound(f"{trial_id!r} is no trial id; the experiment's page lists its trials")
    await context_of(request).service.kill_trial(id_, trial_id)
    return await back(request)


_HERE = "/experiments/{id}"
ROUTES = [
    Route(f"{_HERE}/stop", _stop, methods=["POST"]),
    Route(f"{_HERE}/resume", _resume, methods=["POST"]),
    Route(f"{_HERE}/trials/{{trial_id}}/kill", _kill, methods=["POST"]),
]
