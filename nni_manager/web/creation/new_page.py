"""``/new``: makes an experiment of a file that is pasted or uploaded. What is wrong is shown beside its line."""

from __future__ import annotations

from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from nni_manager.domain.errors import Conflict, NniManagerError, NotFound
from nni_manager.web.creation import uploaded_form, verdict
from nni_manager.web.creation.verdict import Verdict
from nni_manager.web.rendering import context_of, is_on_endpoint, reads_only, render


async def _form(request: Request) -> Response:
    _require_offered(request)
    return _show(request, Verdict(text=""), is_checked=False)


async def _sent(request: Request) -> Response:
    """Checks the file, or makes the experiment and goes to its page; what is wrong is shown with the text again."""
    _require_offered(request)
    fields = await uploaded_form.fields_of(request)
    found = await verdict.judge(context_of(request), fields.get("file") or fields.get("config", ""))
    if fields.get("action") != "start" or found.submission is None:
        return _show(request, found, is_checked=True)
    try:
        id_ = await context_of(request).service.create(found.submission)
    except NniManagerError as error:
        return _show(request, verdict.refused(found, error), is_checked=True)
    return RedirectResponse(f"{request.scope.get('root_path', '')}/experiments/{id_}", HTTPStatus.SEE_OTHER)


def _show(request: Request, found: Verdict, *, is_checked: bool) -> Response:
    status = HTTPStatus.BAD_REQUEST if found.problems else HTTPStatus.OK
    return render(request, "new.html", status, verdict=found, is_checked=is_checked)


def _require_offered(request: Request) -> None:
    if context_of(request).read_experiment is None or is_on_endpoint(request):
        raise NotFound("experiments are made on the page of the service, not here")
    if reads_only(request):
        raise Conflict("this session shows all and changes nothing: an experiment is made with the daemon's own token")


ROUTES = [Route("/new", _form), Route("/new", _sent, methods=["POST"])]
