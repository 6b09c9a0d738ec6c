"""The address of an experiment's page for a caller, and the endpoint that a caller requests."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from nni_manager.domain.environment import PORT_VARIABLE
from nni_manager.domain.errors import InvalidInput

if TYPE_CHECKING:
    from nni_manager.client.caller import ChosenDaemon
    from nni_manager.client.manager_client import ManagerClient

Json = dict[str, Any]

#: Addresses of a listener on all interfaces, which a browser cannot open.
_ANY = ("0.0.0.0", "::")  # noqa: S104 (only compared)


def wish(place: ChosenDaemon, port: int | None, url_prefix: str | None = None) -> Json:
    """The requested endpoint. Without a port, the daemon decides: it opens none if its service has the page.

    Raises InvalidInput for an invalid port in the environment.
    """
    found: Json = {"port": port, "urlPrefix": url_prefix or ""}
    variable = os.environ.get(PORT_VARIABLE, "")
    if port is not None or not variable or place.is_remote:
        return found
    if not (variable.isdecimal() and int(variable) <= 65535):
        raise InvalidInput(f"{PORT_VARIABLE}: must be a port from 0 to 65535, not {variable!r}")
    return {**found, "firstPort": int(variable)}


def page(experiment: Json, client: ManagerClient, place: ChosenDaemon) -> str:
    """The address of an experiment's page: its own, else the one on the daemon's service.

    Empty if it has none, or the manager sent an address that is unsafe as a link.
    """
    found = own_page(experiment, place) or service_page(client, str(experiment["id"]), place)
    return found if _is_link(found) else ""


def own_page(experiment: Json, place: ChosenDaemon) -> str:
    """The address of an experiment's own page, or empty.

    For a manager on another machine, the host is from the manager's URL, because the daemon does not know its external
    name.
    """
    endpoint = experiment.get("endpoint")
    if not endpoint:
        return ""
    if not place.is_remote:
        return _reachable(endpoint["url"])
    from nni_manager.client.address import Address, parse_url

    listener = Address(host=parse_url(place.url).host, port=endpoint["port"])
    return f"{listener}/{endpoint['urlPrefix']}/" if endpoint["urlPrefix"] else f"{listener}/"


def service_page(client: ManagerClient, id: str, place: ChosenDaemon) -> str:
    """The address of an experiment's page on the daemon's service; empty if the daemon listens on no port.

    It begins with the URL of a manager on another machine, or with a local address of the daemon.
    """
    if place.is_remote:
        return f"{place.url.rstrip('/')}/experiments/{id}"
    services = (
        listener["address"] for listener in client.daemon().get("listeners", ()) if listener["kind"] == "service"
    )
    return next((f"{_reachable(address)}/experiments/{id}" for address in services), "")


def _reachable(address: str) -> str:
    import socket

    parts = urlsplit(address)
    if parts.hostname not in _ANY:
        return address
    return parts._replace(netloc=f"{socket.gethostname()}:{parts.port}").geturl()


def _is_link(address: str) -> bool:
    """Whether an address from a manager is a web address, not a script or control sequence."""
    return address.lower().startswith(("http://", "https://")) and address.isprintable() and " " not in address
