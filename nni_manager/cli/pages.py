"""Where an experiment's page is, as whoever runs the command reaches it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nni_manager.cli import place

if TYPE_CHECKING:
    from nni_manager.client.manager_client import ManagerClient

Json = dict[str, Any]

#: A door on all interfaces says so, and is no address to open.
_ANY = ("0.0.0.0", "::")  # noqa: S104 (what is looked for)


def of_view(experiment: Json) -> str:
    """Its own; empty: it has none. The daemon cannot know by which name others reach its machine."""
    view = experiment.get("view")
    if not view:
        return ""
    here = place.current()
    if not here.is_elsewhere:
        return _reachable(view["url"])
    from nni_manager.client.address import Address, parse_url

    door = Address(host=parse_url(here.url).host, port=view["port"])
    return f"{door}/{view['urlPrefix']}/" if view["urlPrefix"] else f"{door}/"


def of_service(client: ManagerClient, id: str) -> str:
    """The one on the daemon's; empty: it listens on no port. As the command itself reaches the daemon, if by TCP; else
    by what the daemon says of its doors."""
    here = place.current()
    if here.is_elsewhere:
        return f"{here.url.rstrip('/')}/experiments/{id}"
    services = (door["address"] for door in client.daemon().get("doors", ()) if door["kind"] == "service")
    return next((f"{_reachable(address)}/experiments/{id}" for address in services), "")


def _reachable(address: str) -> str:
    import socket
    from urllib.parse import urlsplit

    parts = urlsplit(address)
    if parts.hostname not in _ANY:
        return address
    return parts._replace(netloc=f"{socket.gethostname()}:{parts.port}").geturl()
