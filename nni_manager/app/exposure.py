"""Who can reach an address: a door that others than this machine's users can reach needs a token."""

from __future__ import annotations

import ipaddress

from nni_manager.config.settings import Settings
from nni_manager.domain.errors import InvalidInput

#: Characters of a token on an address that others can reach.
SHORTEST_TOKEN = 16


def check(settings: Settings) -> None:
    """For service and views, which share host and token. Raises InvalidInput."""
    if is_loopback(settings.host):
        return
    if not settings.token:
        raise InvalidInput(
            f"--host {settings.host} can be reached by others: set NNI_MANAGER_TOKEN, or say --insecure if that is"
            " meant"
        )
    if len(settings.token) < SHORTEST_TOKEN:
        raise InvalidInput(
            f"--host {settings.host} can be reached by others, and the token is so short that it can be guessed: take"
            f" one of {SHORTEST_TOKEN} characters at least (`openssl rand -hex 16` makes one), or say --insecure if"
            " that is meant"
        )


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
