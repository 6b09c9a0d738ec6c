"""The token of this attempt: taken out of the environment before anything is started, shown to the manager alone."""

import ctypes
import os
from typing import Dict, MutableMapping

from trial_runner import processes, protocol
from trial_runner.settings import BadSetting


class Credential:
    """Neither `repr` nor `str` shows the token."""

    __slots__ = ("_token",)

    def __init__(self, token: str) -> None:
        """Raises BadSetting for what no header may hold."""
        if not token or not all("!" <= character <= "~" for character in token):
            raise BadSetting(
                "{} is not a token: give the one that the manager made for this attempt.".format(protocol.ENV_TOKEN)
            )
        self._token = token

    def headers(self) -> Dict[str, str]:
        return {"Authorization": "Bearer " + self._token}

    def __repr__(self) -> str:
        return "Credential(hidden)"


def take(environment: MutableMapping[str, str]) -> Credential:
    """Removes the token, also where `/proc` shows what this process was started with. Raises BadSetting."""
    if environment is os.environ:
        processes.forbid_inspection()
        _overwrite(os.fsencode(protocol.ENV_TOKEN))
    return Credential(environment.pop(protocol.ENV_TOKEN, ""))


def _overwrite(name: bytes) -> None:
    """The memory that the kernel put the value into; Python has a copy of its own."""
    libc = ctypes.CDLL(None)
    libc.getenv.restype = ctypes.c_void_p
    address = libc.getenv(name)
    if address:
        ctypes.memset(address, ord("x"), len(ctypes.string_at(address)))
