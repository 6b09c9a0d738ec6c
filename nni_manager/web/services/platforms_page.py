"""``/platforms``: each training service with its machines, and what each GPU is doing."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nni_manager.domain.errors import NotFound
from nni_manager.domain.service import ServiceStatus
from nni_manager.scheduler.experiments import service_map
from nni_manager.scheduler.experiments.service_map import ServiceState
from nni_manager.web.rendering import context_of, is_on_endpoint, render
from nni_manager.web.shared_pages import of_all, shared

#: The worst first: a service is called what it is for one of its experiments.
_WORST = (ServiceStatus.ON_HOLD, ServiceStatus.AWAY, ServiceStatus.CONNECTING, ServiceStatus.UP)


async def platforms_page(request: Request, *, error: str = "", status: int = 200) -> Response:
    """The page; `error`: why what was asked for was refused. Raises NotFound or StoreError."""
    if is_on_endpoint(request):
        raise NotFound("training services are shown on the page of the service, not here")
    service = context_of(request).service
    states = await service_map.read(service.open_experiments, service.connections)
    names = {use.experiment_id: use.experiment_name for state in states for use in state.uses}
    return render(
        request,
        "platforms.html",
        status,
        services=[(state, _worst(state)) for state in states],
        line=service_map.line(service.connections),
        names=names,
        listed=_with_machine_lists(states),
        error=error,
    )


def _worst(state: ServiceState) -> str:
    found = {use.service.status for use in state.uses}
    return next((one.value for one in _WORST if one in found), ServiceStatus.UP.value)


def _with_machine_lists(states: Sequence[ServiceState]) -> frozenset[str]:
    """The platforms whose machines can be added and drained here."""
    return frozenset(state.platform for state in states if any(one.report.is_listed for one in state.machines))


ROUTES = [Route("/platforms", shared(platforms_page, of_all))]
