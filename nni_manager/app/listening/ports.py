"""TCP ports, reserved before they are served. A port that other machines can reach requires a token."""

from __future__ import annotations

import errno
import ipaddress
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from nni_manager.config.settings import Settings
from nni_manager.domain.errors import AlreadyOwned, InvalidInput
from nni_manager.platform_kit.threads import to_its_end

#: Fewest characters of a token.
SHORTEST_TOKEN = 16


def check_exposure(settings: Settings) -> None:
    """Require a token if other machines reach service and endpoints, which share host and token.

    A token must never be easy to guess: on loopback, it replaces the check of the connection's user. Raises
    InvalidInput.
    """
    is_own = is_loopback(settings.host)
    if not settings.token and not is_own:
        raise InvalidInput(
            f"--host {settings.host} can be reached by others: set NNI_MANAGER_TOKEN, or use --insecure to allow this"
        )
    for name, token in (("token", settings.token), ("readToken", settings.read_token)):
        if token and len(token) < SHORTEST_TOKEN:
            raise InvalidInput(
                f"--host {settings.host} can be reached by {'all users of this machine' if is_own else 'others'}, and"
                f" the {name} is too short: use one of at least {SHORTEST_TOKEN} characters"
                " (`openssl rand -hex 16` creates one), or use --insecure to allow this"
            )


def check_read_token(settings: Settings) -> None:
    """Require that the read token allows nothing else. Raises InvalidInput."""
    if settings.read_token and not settings.token:
        raise InvalidInput(
            "readToken requires token: without one, the daemon checks only the users of connections. Set"
            " NNI_MANAGER_TOKEN or --token-file, too"
        )
    if settings.read_token and settings.read_token == settings.token:
        raise InvalidInput("readToken and token are equal, so a reader could change everything; set two different ones")


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


_BACKLOG = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserved:
    """A reserved TCP port. `address`: ``http://host:port``, the host as given."""

    address: str
    port: int
    #: Listening sockets; several when the host name has several addresses.
    sockets: tuple[socket.socket, ...]

    def give_back(self) -> None:
        """Release a port that is not needed."""
        for each in self.sockets:
            each.close()


def reserve(host: str, port: int, *, options: str = "") -> Reserved:
    """Resolve the host and take the port; 0: any free one. `options`: prefix of ``port`` and ``host`` in messages.

    Raises AlreadyOwned with the process, or InvalidInput for an address of another machine.
    """
    try:
        taken = _take(host, port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise AlreadyOwned(
                f"port {port} is in use by {_holder(port)}; choose another with --{options}port"
            ) from None
        reason = error.strerror or str(error)
        option = "port" if error.errno in (errno.EACCES, errno.EPERM) else "host"
        raise InvalidInput(
            f"the daemon cannot listen on {host}:{port} ({reason}); choose another with --{options}{option}"
        ) from None
    bound = taken[0].getsockname()[1]
    return Reserved(address=http_address(host, bound), port=bound, sockets=tuple(taken))


async def reserve_in_thread(choose: Callable[[], Reserved]) -> Reserved:
    """Call `choose` in a thread, because it resolves host names. Cancellation releases the port.

    Raises the exceptions of `choose`.
    """
    return await to_its_end(choose, undo=Reserved.give_back)  # else the next attempt would find the port taken


def http_address(host: str, port: int, *, tls: bool = False) -> str:
    """The address ``http://host:port``, with an IPv6 address in brackets."""
    return f"{'https' if tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"


def _take(host: str, port: int) -> list[socket.socket]:
    """Sockets on all local addresses of a host name, with the same port. Raises OSError."""
    taken: list[socket.socket] = []
    missing: OSError | None = None
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    for family, address in dict.fromkeys((family, address) for family, _, _, _, address in found):
        try:
            taken.append(_listen(family, address, taken[0].getsockname()[1] if taken else port))
        except OSError as error:
            if error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
                for each in taken:
                    each.close()
                raise
            missing = error  # such as localhost's ::1 without IPv6
    if not taken and missing is not None:
        raise missing
    return taken


def _listen(family: int, address: tuple[Any, ...], port: int) -> socket.socket:
    taken = socket.socket(family)
    try:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            taken.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        taken.bind((address[0], port, *address[2:]))
        taken.listen(_BACKLOG)
        taken.setblocking(False)
    except OSError:
        taken.close()
        raise
    return taken


def _holder(port: int) -> str:
    import psutil

    with suppress(psutil.Error):
        for connection in psutil.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr[1:] == (port,) and connection.pid:
                name = psutil.Process(connection.pid).name()
                return f"process {connection.pid} ({name})"
    return "another process"
