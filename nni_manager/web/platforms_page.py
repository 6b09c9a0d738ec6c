"""``/platforms``: training services with their machines and GPUs, and the forms that change them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from nni_manager.config import credentials, experiment_file
from nni_manager.config.service_change import ServiceChange
from nni_manager.config.settings import own_environment
from nni_manager.domain.errors import InvalidInput, NniManagerError, NotFound
from nni_manager.domain.experiment import ExperimentSpec
from nni_manager.domain.service import ServiceStatus
from nni_manager.machines.ssh.address import Address
from nni_manager.scheduler.experiments import service_map
from nni_manager.scheduler.experiments.commands import ExperimentCommands
from nni_manager.scheduler.experiments.open_experiment import OpenExperiment
from nni_manager.scheduler.experiments.service_map import ServiceState
from nni_manager.web import shown_experiments
from nni_manager.web.rendering import context_of, experiment_id, form_of, is_on_endpoint, redirect, render
from nni_manager.web.shared_pages import of_all, shared

#: Worst first. The page shows the worst status that a service has in any experiment.
_WORST = (ServiceStatus.ON_HOLD, ServiceStatus.AWAY, ServiceStatus.CONNECTING, ServiceStatus.UP)


async def platforms_page(request: Request, *, error: str = "", status: int = 200) -> Response:
    """Render the page. `error`: why a request of its forms was refused. Raises NotFound or StoreError."""
    if is_on_endpoint(request):
        raise NotFound("this address does not show training services; open the page of `nni-manager serve`")
    service = context_of(request).commands
    states = await service_map.read(service.open_experiments, service.connections)
    names = {use.experiment_id: use.experiment_name for state in states for use in state.uses}
    return render(
        request,
        "platforms.html",
        status,
        services=[(state, _worst(state)) for state in states],
        line=service_map.line(service.connections),
        names=names,
        with_secrets=frozenset(one.id for one in service.open_experiments if credentials.known(one.spec)),
        listed=frozenset(state.platform for state in states if any(one.report.is_listed for one in state.machines)),
        error=error,
    )


def _worst(state: ServiceState) -> str:
    found = {use.service.status for use in state.uses}
    return next((one.value for one in _WORST if one in found), ServiceStatus.UP.value)


#: Fields of a machine in the form: name → whether it is a number.
_FIELDS = {"host": False, "port": True, "user": False, "sshKeyFile": False, "hostKey": False, "password": False}


async def _add(request: Request) -> Response:
    form = await form_of(request)
    given = {name: form.get(name, [""])[0].strip() for name in _FIELDS}
    try:
        if given["port"] and not (given["port"].isascii() and given["port"].isdecimal() and len(given["port"]) < 6):
            raise InvalidInput("port: must be a number from 1 to 65535")
        if not given["host"] or not given["user"]:
            raise InvalidInput("host and user: must not be empty")
        machine = {name: int(text) if _FIELDS[name] else text for name, text in given.items() if text}
        await add(context_of(request).commands, form.get("platform", ["remote"])[0], machine)
    except NniManagerError as error:
        return await platforms_page(request, error=str(error), status=HTTPStatus.BAD_REQUEST)
    return redirect(request, "/platforms")


async def _drain(request: Request) -> Response:
    form = await form_of(request)
    platform, key = (form.get(name, [""])[0] for name in ("platform", "machine"))
    is_drained = form.get("drain", ["1"])[0] == "1"
    try:
        await drain(context_of(request).commands, platform, key, is_drained=is_drained)
    except NniManagerError as error:
        return await platforms_page(request, error=str(error), status=HTTPStatus.BAD_REQUEST)
    return redirect(request, "/platforms")


async def _renew(request: Request) -> Response:
    """Store the values that were filled in; empty fields stay unchanged. Values are never sent back."""
    form = await form_of(request)
    values = {name.removeprefix("secret:"): given[0] for name, given in form.items() if name.startswith("secret:")}
    given = {reference: value for reference, value in values.items() if value}
    try:
        if not given:
            raise InvalidInput("no value was entered; fill in at least one field")
        await context_of(request).commands.renew_secrets(experiment_id(request), given, own_environment())
    except InvalidInput as error:
        return await _secrets_form(request, str(error))
    return RedirectResponse(_after_secrets(request), HTTPStatus.SEE_OTHER)


async def _secrets_form(request: Request, error: str = "") -> Response:
    context, id_ = context_of(request), experiment_id(request)
    entry = await context.commands.entry(id_)
    references = credentials.known(experiment_file.from_canonical(await shown_experiments.config_of(context, id_)))
    status = HTTPStatus.BAD_REQUEST if error else HTTPStatus.OK
    values = {"entry": entry, "references": references, "error": error, "leads_to": _after_secrets(request)}
    return render(request, "credentials.html", status, **values)


def _after_secrets(request: Request) -> str:
    """Path of the next page: an experiment's own port has no platforms page."""
    base = request.scope.get("root_path", "")
    return f"{base}/experiments/{experiment_id(request)}" if is_on_endpoint(request) else f"{base}/platforms"


#: The field that changes, as with `nnictl update platform`.
_LIST = "machineList"
#: Machines of a service → the new machines; equal: no change.
Change = Callable[[Sequence[Mapping[str, Any]]], list[Mapping[str, Any]]]


async def add(commands: ExperimentCommands, platform: str, machine: Mapping[str, Any]) -> None:
    """Add a machine to all services of a platform, in every open experiment.

    Raises InvalidInput with the experiments that refused, and why.
    """
    key = Address.of(machine).key

    def with_it(machines: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        is_known = any(Address.of(one).key == key for one in machines)
        return list(machines) if is_known else [*machines, machine]

    await _change_all(commands, platform, with_it)


async def drain(commands: ExperimentCommands, platform: str, key: str, *, is_drained: bool) -> None:
    """Drain a machine in all open experiments, or undo that. Raises as `add`."""

    def drained(machines: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        return [{**one, "drain": is_drained} if Address.of(one).key == key else one for one in machines]

    await _change_all(commands, platform, drained)


async def _change_all(commands: ExperimentCommands, platform: str, change: Change) -> None:
    """Change every open experiment, even if some refuse."""
    experiments = commands.open_experiments
    outcomes = await asyncio.gather(*(_tried(commands, one, platform, change) for one in experiments))
    names = [f"{one.spec.name} ({one.id})" if one.spec.name else one.id for one in experiments]
    done = [name for name, outcome in zip(names, outcomes, strict=True) if outcome is True]
    refused = [f"not for {name}: {why}" for name, why in zip(names, outcomes, strict=True) if isinstance(why, str)]
    if refused:
        raise InvalidInput("; ".join([f"done for {', '.join(done)}", *refused] if done else refused))
    if not done:
        raise InvalidInput(f"no open experiment has a {platform} service that this changes")


async def _tried(commands: ExperimentCommands, one: OpenExperiment, platform: str, change: Change) -> bool | str:
    """Whether the experiment changed; a text: why it could not."""
    try:
        return await _change_one(commands, one.id, platform, change)
    except (NniManagerError, OSError) as error:
        return str(error)


async def _change_one(commands: ExperimentCommands, id: str, platform: str, change: Change) -> bool:
    is_changed = False

    def wish(spec: ExperimentSpec) -> ServiceChange | None:
        nonlocal is_changed
        given = spec.canonical["trainingService"]
        sections: list[Any] = given if isinstance(given, list) else [given]
        changed = [_changed(section, platform, change) for section in sections]
        is_changed = changed != sections
        return ServiceChange(sections=changed if isinstance(given, list) else changed[0]) if is_changed else None

    await commands.change(id, {}, wish)
    return is_changed


def _changed(section: Mapping[str, Any], platform: str, change: Change) -> Mapping[str, Any]:
    if section.get("platform") != platform or not isinstance(section.get(_LIST), list):
        return section
    return {**section, _LIST: change(section[_LIST])}


ROUTES = [
    Route("/platforms", shared(platforms_page, of_all)),
    Route("/platforms/machines", _add, methods=["POST"]),
    Route("/platforms/drain", _drain, methods=["POST"]),
    Route("/experiments/{id}/credentials", _secrets_form),
    Route("/experiments/{id}/credentials", _renew, methods=["POST"]),
]
