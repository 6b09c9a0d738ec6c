"""Forms of the page of training services: add and drain a machine, give secrets anew."""

from __future__ import annotations

from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from nni_manager.config import credentials, experiment_file
from nni_manager.config.daemon_settings.settings import own_environment
from nni_manager.domain.errors import InvalidInput, NniManagerError
from nni_manager.web import shown_experiments
from nni_manager.web.rendering import context_of, experiment_id, form_of, is_on_endpoint, render
from nni_manager.web.services import machine_lists
from nni_manager.web.services.platforms_page import platforms_page

#: Fields of a machine in the form: name → whether it is a number.
_FIELDS = {"host": False, "port": True, "user": False, "sshKeyFile": False, "hostKey": False, "password": False}


async def _add(request: Request) -> Response:
    form = await form_of(request)
    given = {name: form.get(name, [""])[0].strip() for name in _FIELDS}
    try:
        if given["port"] and not (given["port"].isascii() and given["port"].isdecimal() and len(given["port"]) < 6):
            raise InvalidInput("port: must be a number from 1 to 65535")
        if not given["host"] or not given["user"]:
            raise InvalidInput("host and user: must be given")
        machine = {name: int(text) if _FIELDS[name] else text for name, text in given.items() if text}
        await machine_lists.add(context_of(request).service, form.get("platform", ["remote"])[0], machine)
    except NniManagerError as error:
        return await platforms_page(request, error=str(error), status=HTTPStatus.BAD_REQUEST)
    return _to_page(request)


async def _drain(request: Request) -> Response:
    form = await form_of(request)
    platform, key = (form.get(name, [""])[0] for name in ("platform", "machine"))
    is_drained = form.get("drain", ["1"])[0] == "1"
    try:
        await machine_lists.drain(context_of(request).service, platform, key, is_drained=is_drained)
    except NniManagerError as error:
        return await platforms_page(request, error=str(error), status=HTTPStatus.BAD_REQUEST)
    return _to_page(request)


async def _credentials(request: Request) -> Response:
    return await _secrets_form(request, "")


async def _renew(request: Request) -> Response:
    """Stores what was filled in; what was left empty stays. No value is ever sent back."""
    form = await form_of(request)
    values = {name.removeprefix("secret:"): given[0] for name, given in form.items() if name.startswith("secret:")}
    given = {reference: value for reference, value in values.items() if value}
    try:
        if not given:
            raise InvalidInput("no value was given; what stays empty stays as it is")
        await context_of(request).service.renew_secrets(experiment_id(request), given, own_environment())
    except InvalidInput as error:
        return await _secrets_form(request, str(error))
    return RedirectResponse(_after_secrets(request), HTTPStatus.SEE_OTHER)


async def _secrets_form(request: Request, error: str) -> Response:
    context, id_ = context_of(request), experiment_id(request)
    entry = await context.service.entry(id_)
    references = credentials.known(experiment_file.from_canonical(await shown_experiments.config_of(context, id_)))
    status = HTTPStatus.BAD_REQUEST if error else HTTPStatus.OK
    values = {"entry": entry, "references": references, "error": error, "leads_to": _after_secrets(request)}
    return render(request, "credentials.html", status, **values)


def _after_secrets(request: Request) -> str:
    """An experiment's own port has no page of all services."""
    base = request.scope.get("root_path", "")
    return f"{base}/experiments/{experiment_id(request)}" if is_on_endpoint(request) else f"{base}/platforms"


def _to_page(request: Request) -> Response:
    return RedirectResponse(f"{request.scope.get('root_path', '')}/platforms", HTTPStatus.SEE_OTHER)


ROUTES = [
    Route("/platforms/machines", _add, methods=["POST"]),
    Route("/platforms/drain", _drain, methods=["POST"]),
    Route("/experiments/{id}/credentials", _credentials),
    Route("/experiments/{id}/credentials", _renew, methods=["POST"]),
]
