"""The first of a name's hosts whose SSH server answers.

A host that hangs may still accept connections: its kernel does. An SSH server sends its version first, so a host counts
only when it has sent something.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from itertools import zip_longest

import asyncssh
from aiohappyeyeballs import AddrInfoType, start_connection

from nni_manager.platform_kit.tasks import ended, readable

#: Seconds until the next address is tried, too.
_NEXT_ADDRESS_S = 0.5


async def answering_host(addresses: Sequence[AddrInfoType], silent: list[str]) -> socket.socket:
    """A connection to the first of these addresses that sends something; all that it sent can still be read.

    `silent`: receives the addresses that accept connections, but have sent nothing yet. Raises OSError and
    asyncssh.ConnectionLost: of the first address, which is the preferred one.
    """
    waiting = _by_turns(addresses)
    attempts: list[asyncio.Task[socket.socket]] = []
    first: asyncio.Task[socket.socket] | None = None
    try:
        while first is None and (waiting or not all(one.done() for one in attempts)):
            if waiting:
                attempts.append(asyncio.create_task(_answering(waiting.pop(0), silent)))
            running = [one for one in attempts if not one.done()]
            limit_s = _NEXT_ADDRESS_S if waiting else None
            await asyncio.wait(running, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
            first = next((one for one in attempts if one.done() and one.exception() is None), None)
    finally:
        await ended(*attempts)
        for one in attempts:
            if one is not first and not one.cancelled() and one.exception() is None:
                one.result().close()
    return (first or attempts[0]).result()


def _by_turns(addresses: Sequence[AddrInfoType]) -> list[AddrInfoType]:
    """The addresses, IPv4 and IPv6 alternating: one family may have no route."""
    families: dict[int, list[AddrInfoType]] = {}
    for address in addresses:
        families.setdefault(int(address[0]), []).append(address)
    return [address for turn in zip_longest(*families.values()) for address in turn if address is not None]


async def _answering(address: AddrInfoType, silent: list[str]) -> socket.socket:
    sock = await start_connection([address])
    name = str(address[4][0])
    silent.append(name)
    try:
        await readable(sock)
        silent.remove(name)
        if not sock.recv(1, socket.MSG_PEEK):
            raise asyncssh.ConnectionLost("Connection lost")
    except BaseException:
        sock.close()
        raise
    return sock
