"""Who can reach an address: a door that others than this machine's users can reach needs a token."""

from __future__ import annotations

import ipaddress

from nni_manager.config.settings import Settings
from nni_manager.domain.errors import InvalidInput


def check(settings: Settings) -> None:
    """For service and views, which share host and token. Raises InvalidInput."""
    if settings.token or is_loopback(settings.host):
        return
    raise InvalidInput(
        f"--host {settings.host} can be reached by others: set NNI_MANAGER_TOKEN, or say --insecure if that is meant"
    )


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
