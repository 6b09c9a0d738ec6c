"""The token of this attempt: taken out of the environment before anything is started, shown to the manager alone."""

import os
from typing import Dict, MutableMapping

from trial_runner import libc, processes, protocol
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

    @property
    def manager(self) -> str:
        """Name of the manager that made the token; no secret."""
        return self._token.partition(".")[0]

    def headers(self) -> Dict[str, str]:
        return {"Authorization": "Bearer " + self._token}

    def __repr__(self) -> str:
        return "Credential(hidden)"


def take(environment: MutableMapping[str, str]) -> Credential:
    """Removes the token, also where `/proc` shows what this process was started with. Raises BadSetting."""
    if environment is os.environ:
        processes.forbid_inspection()
        libc.overwrite_variable(os.fsencode(protocol.ENV_TOKEN))
    return Credential(environment.pop(protocol.ENV_TOKEN, ""))
