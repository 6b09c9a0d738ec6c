"""The users of this machine that a listener without a token lets in: our own, root, and those that were allowed.

Every user of a machine can connect to 127.0.0.1, and what an experiment's file says is run as us.
"""

from __future__ import annotations

import os
from typing import Protocol

from starlette.types import Scope

#: Where a request's state has the `Peer` of its connection.
PEER = "peer"
REFUSAL = (
    "only {user} of this machine and root are let in here without a token, and this connection is not known to be"
    " theirs: start the daemon with --token-file or NNI_MANAGER_TOKEN, and send `Authorization: Bearer <token>`; or"
    " name the user that connects, such as a proxy's, in allowLocalUsers (--allow-local-users, `true`: all of them)"
)


class Peer(Protocol):
    """The other end of a connection."""

    async def uid(self) -> int | None:
        """The user id of its process; None: it is none of this machine, or cannot be told."""


class LocalUsers:
    """`allowed`: user ids besides our own and root's; True: nobody is asked."""

    def __init__(self, allowed: bool | frozenset[int] = False) -> None:
        self._are_all_allowed = allowed is True
        self._allowed = {0, os.geteuid()} | (allowed if isinstance(allowed, frozenset) else set())

    async def lets_in(self, scope: Scope) -> bool:
        """Whether the connection of a request is theirs. One that says nothing of its other end is not."""
        if self._are_all_allowed:
            return True
        peer: Peer | None = scope.get("state", {}).get(PEER)
        return peer is not None and await peer.uid() in self._allowed


def refusal() -> str:
    """The sentence for everybody else."""
    return REFUSAL.format(user=f"the user with id {os.geteuid()}")
