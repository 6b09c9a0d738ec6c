"""The user at the other end of a TCP connection, if that end is on this machine.

The kernel looks up the socket with the connection's addresses swapped (netlink's ``sock_diag``). If it does not answer,
as in some sandboxes, /proc/net/tcp is read. Both cover only our network namespace, so a connection from another machine
or a container has no user here. A socket without an inode no longer belongs to a process; its user id would read as
root's.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import struct
from asyncio import BaseTransport
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

Address = tuple[str, int]
_IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

#: Constants of the kernel (linux/sock_diag.h, linux/inet_diag.h, net/tcp_states.h).
_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, _TCP = 4, 20, 1, 6
_NO_COOKIE = 0xFFFFFFFF
_TCP_CLOSE = 7
#: Established, or half closed by one side; a socket that is still being opened does not count.
_CONNECTED = (1, 4, 5, 8)
_HEADER = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBBBI")
_ENDS = struct.Struct("!HH16s16s")
_REST = struct.Struct("=III")
_ANSWER = struct.Struct("=BBBB")
#: In an answer, after the addresses: interface, cookie, timer and queues (skipped), then user id and inode.
_OWNER = struct.Struct("=4x8x12xII")
_TABLES = (Path("/proc/self/net/tcp"), Path("/proc/self/net/tcp6"))


@dataclass(frozen=True, slots=True)
class _Found:
    state: int
    uid: int
    inode: int


class Peer:
    """The peer of a connection, looked up once, at the first call."""

    def __init__(self, transport: BaseTransport) -> None:
        self._transport = transport
        self._socket = transport.get_extra_info("socket")
        self._here: Address | None = _address(transport.get_extra_info("sockname"))
        self._there: Address | None = _address(transport.get_extra_info("peername"))
        self._looking: asyncio.Future[int | None] | None = None

    async def uid(self) -> int | None:
        """The user id; None if it is not a user of this machine or unknown."""
        if self._looking is None:
            self._looking = asyncio.ensure_future(self._look())
        return await asyncio.shield(self._looking)

    async def _look(self) -> int | None:
        """The user id, trusted only while our end is open: no other socket can then take the peer's addresses."""
        if self._here is None or self._there is None or not self._is_open():
            return None
        uid = await uid_of(self._there, self._here)
        return uid if self._is_open() else None

    def _is_open(self) -> bool:
        if self._transport.is_closing():  # the descriptor may belong to another connection
            return False
        try:
            return bool(self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != _TCP_CLOSE)
        except (OSError, ValueError):  # ValueError: no descriptor any more
            return False


async def uid_of(there: Address, here: Address) -> int | None:
    """The user of the socket at `there` that is connected to ours at `here`; None without such a socket and process.

    The kernel finds a socket in microseconds, faster than a thread starts; reading its tables may take long.
    """
    found = _ask_kernel(there, here)
    if found is None and _ask_kernel(here, there) is None:  # sock_diag does not find our own end, either
        found = await asyncio.to_thread(_read_tables, there, here)
    if found is None or found.inode == 0 or found.state not in _CONNECTED:
        return None
    return found.uid


def _address(name: object) -> Address | None:
    return (name[0], name[1]) if isinstance(name, tuple) else None


# The kernel


def _ask_kernel(local: Address, remote: Address) -> _Found | None:
    """The socket, from sock_diag; None: no such socket, or no answer."""
    with suppress(OSError, ValueError, struct.error):
        family = socket.AF_INET6 if ":" in local[0] else socket.AF_INET
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG) as kernel:
            ends = _ENDS.pack(
                local[1], remote[1], socket.inet_pton(family, local[0]), socket.inet_pton(family, remote[0])
            )
            body = _REQUEST.pack(family, _TCP, 0, 0, 0xFFFFFFFF) + ends + _REST.pack(0, _NO_COOKIE, _NO_COOKIE)
            header = _HEADER.pack(_HEADER.size + len(body), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 0, 0)
            kernel.sendto(header + body, (0, 0))
            answer, sender = kernel.recvfrom(8192, socket.MSG_DONTWAIT)  # the kernel answers within the call of `send`
            return _parsed(answer, local, remote) if sender[0] == 0 else None
    return None


def _parsed(answer: bytes, local: Address, remote: Address) -> _Found | None:
    """The socket of an answer; None: an error, or another socket, such as the listening one."""
    if _HEADER.unpack_from(answer)[1] != _SOCK_DIAG_BY_FAMILY:
        return None
    family, state, *_ = _ANSWER.unpack_from(answer, _HEADER.size)
    at = _HEADER.size + _ANSWER.size
    local_port, remote_port, local_bytes, remote_bytes = _ENDS.unpack_from(answer, at)
    size = 4 if family == socket.AF_INET else 16
    ends = ((_bare(local_bytes[:size]), local_port), (_bare(remote_bytes[:size]), remote_port))
    if ends != (_plain(local), _plain(remote)):
        return None
    uid, inode = _OWNER.unpack_from(answer, at + _ENDS.size)
    return _Found(state=state, uid=uid, inode=inode)


def _plain(address: Address) -> tuple[_IpAddress, int]:
    return _bare(ipaddress.ip_address(address[0].partition("%")[0]).packed), address[1]


def _bare(packed: bytes) -> _IpAddress:
    """The address; an IPv4 address mapped into IPv6 becomes the IPv4 address."""
    address = ipaddress.ip_address(packed)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


# Its tables


def _read_tables(local: Address, remote: Address) -> _Found | None:
    wanted = (_plain(local), _plain(remote))
    for table in _TABLES:
        with suppress(OSError, ValueError, IndexError):
            for ends, found in _lines(table):
                if ends == wanted:
                    return found
    return None


def _lines(table: Path) -> Iterator[tuple[tuple[tuple[_IpAddress, int], ...], _Found]]:
    with table.open(encoding="ascii") as lines:
        next(lines, None)
        for line in lines:
            words = line.split()
            ends = (_table_address(words[1]), _table_address(words[2]))
            yield ends, _Found(state=int(words[3], 16), uid=int(words[7]), inode=int(words[9]))


def _table_address(text: str) -> tuple[_IpAddress, int]:
    """Parses ``0100007F:1F90``: 32-bit words in native byte order, and the port."""
    digits, _, port = text.partition(":")
    words = [int(digits[at : at + 8], 16) for at in range(0, len(digits), 8)]
    return _bare(struct.pack(f"={len(words)}I", *words)), int(port, 16)
