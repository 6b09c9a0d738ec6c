"""The users of this machine that a listener without a token lets in: the daemon's own, root, and configured ones.

Every local user can connect to 127.0.0.1, and the commands of an experiment file run as the daemon's user.
"""

from __future__ import annotations

import os
from typing import Protocol

from starlette.types import Scope

#: Key of the connection's `Peer` in a request's state.
PEER = "peer"
REFUSAL = (
    "only {user} of this machine and root are let in here without a token, and this connection is not known to be"
    " theirs: start the daemon with --token-file or NNI_MANAGER_TOKEN, and send `Authorization: Bearer <token>`; or"
    " name the user that connects, such as a proxy's, in allowLocalUsers (--allow-local-users, `true`: all of them)"
)


class Peer(Protocol):
    """The other end of a connection."""

    async def uid(self) -> int | None:
        """The user id of its process; None: not on this machine, or unknown."""


class LocalUsers:
    """`allowed`: user ids besides the daemon's and root; True: all users."""

    def __init__(self, allowed: bool | frozenset[int] = False) -> None:
        self._are_all_allowed = allowed is True
        self._allowed = {0, os.geteuid()} | (allowed if isinstance(allowed, frozenset) else set())

    async def lets_in(self, scope: Scope) -> bool:
        """Whether the request's connection belongs to an allowed user; False if the user is unknown."""
        if self._are_all_allowed:
            return True
        peer: Peer | None = scope.get("state", {}).get(PEER)
        return peer is not None and await peer.uid() in self._allowed


def refusal() -> str:
    """The error sentence for other users."""
    return REFUSAL.format(user=f"the user with id {os.geteuid()}")
