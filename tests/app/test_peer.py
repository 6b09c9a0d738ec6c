"""The user at the other end of a connection, from the real kernel."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from nni_manager.app.listening import peer
from tests.other_user import NOBODY, command

pytestmark = pytest.mark.unit

LOOPBACK = [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]
_NAMESPACE, _OUTSIDE, _INSIDE = "nnitestpeer", "10.219.84.1", "10.219.84.2"


@pytest.fixture(params=["kernel", "tables"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where the kernel does not answer, its tables are read."""
    if request.param == "tables":
        monkeypatch.setattr(peer, "_NETLINK_SOCK_DIAG", 31)  # no such protocol
    else:
        monkeypatch.setattr(peer, "_TABLES", ())
    return str(request.param)


@contextmanager
def _connected(family: int = socket.AF_INET, host: str = "127.0.0.1") -> Iterator[tuple[socket.socket, socket.socket]]:
    """(the client's end, ours)"""
    with socket.socket(family) as listening, socket.socket(family) as client:
        listening.bind((host, 0))
        listening.listen()
        client.connect(listening.getsockname()[:2])
        ours, _ = listening.accept()
        with ours:
            yield client, ours


async def _uid(ours: socket.socket) -> int | None:
    return await peer.uid_of(ours.getpeername()[:2], ours.getsockname()[:2])


@pytest.mark.parametrize(("family", "host"), LOOPBACK)
async def test_own_process_is_known(way: str, family: int, host: str) -> None:
    with _connected(family, host) as (_, ours):
        assert await _uid(ours) == os.geteuid()


async def test_client_on_dual_stack_socket_is_known(way: str) -> None:
    """As Java's and Go's are."""
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket(socket.AF_INET6) as client:
        client.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        client.connect(("::ffff:127.0.0.1", listening.getsockname()[1]))
        ours, _ = listening.accept()
        with ours:
            assert await _uid(ours) == os.geteuid()


async def test_half_closed_client_is_known(way: str) -> None:
    with _connected() as (client, ours):
        client.shutdown(socket.SHUT_WR)
        assert ours.recv(1) == b""
        assert await _uid(ours) == os.geteuid()


@pytest.mark.parametrize("linger", [None, 0])
async def test_closed_socket_has_no_user(way: str, linger: int | None) -> None:
    with _connected() as (client, ours):
        if linger is not None:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, linger))
        there, here = ours.getpeername(), ours.getsockname()
        client.close()
        assert await peer.uid_of(there, here) is None


async def test_a_listener_at_the_clients_address_is_not_the_client(way: str) -> None:
    """The kernel answers with the listening socket if it finds no connected one."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        assert await peer.uid_of(listening.getsockname(), ("127.0.0.1", 9)) is None


async def test_ended_connection_has_no_user() -> None:
    """Another socket may have its addresses by now."""

    class Transport:
        def __init__(self, ours: socket.socket) -> None:
            self.closes = False
            self._known = {"socket": ours, "sockname": ours.getsockname(), "peername": ours.getpeername()}

        def get_extra_info(self, name: str) -> object:
            return self._known[name]

        def is_closing(self) -> bool:
            return self.closes

    with _connected() as (client, ours):
        looked = peer.Peer(Transport(ours))  # type: ignore[arg-type]
        late = peer.Peer(Transport(ours))  # type: ignore[arg-type]
        assert await looked.uid() == os.geteuid()
        closing = Transport(ours)
        closing.closes = True
        assert await peer.Peer(closing).uid() is None  # type: ignore[arg-type]
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        assert await late.uid() is None
        assert await looked.uid() == os.geteuid()  # asked once a connection


@pytest.mark.machines
async def test_another_user_is_distinguished(way: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        host, port = listening.getsockname()
        program = f"socket.create_connection(({host!r}, {port})).recv(1)"
        with _started(command(NOBODY, program)) as other:
            ours, _ = listening.accept()
            with ours:
                assert await _uid(ours) == NOBODY
                ours.sendall(b".")
            assert other.wait(30) == 0


@pytest.mark.machines
async def test_root_of_another_network_namespace_is_unknown(way: str) -> None:
    with _namespace(), socket.create_server((_OUTSIDE, 0)) as listening:
        program = command(0, f"socket.create_connection({listening.getsockname()!r}).recv(1)")
        with _started(["ip", "netns", "exec", _NAMESPACE, *program]) as other:
            ours, _ = listening.accept()
            with ours:
                assert ours.getpeername()[0] == _INSIDE and await _uid(ours) is None
                ours.sendall(b".")
            assert other.wait(30) == 0


def _started(words: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(words)


@contextmanager
def _namespace() -> Iterator[None]:
    _ip("netns", "add", _NAMESPACE)
    try:
        _ip("link", "add", "nnitestp0", "type", "veth", "peer", "name", "eth0", "netns", _NAMESPACE)
        _ip("addr", "add", f"{_OUTSIDE}/24", "dev", "nnitestp0")
        _ip("link", "set", "nnitestp0", "up")
        _ip("-n", _NAMESPACE, "addr", "add", f"{_INSIDE}/24", "dev", "eth0")
        _ip("-n", _NAMESPACE, "link", "set", "eth0", "up")
        yield
    finally:
        _ip("netns", "del", _NAMESPACE)


def _ip(*words: str) -> None:
    subprocess.run(
        ["ip", *words], check=True, capture_output=True, env={**os.environ, "PATH": "/usr/sbin:/sbin:/usr/bin:/bin"}
    )
