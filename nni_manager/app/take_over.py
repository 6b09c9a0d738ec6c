"""Ends a daemon that `nnictl` started in the background, in favour of one that is to stay and continues its
experiments."""

from __future__ import annotations

import logging

from nni_manager.app.listening.ports import reserve
from nni_manager.client import address
from nni_manager.client.manager_client import ManagerClient
from nni_manager.config.settings import Settings
from nni_manager.domain.errors import AlreadyOwned, NniManagerError

log = logging.getLogger(__name__)


def make_way(settings: Settings, *, listen: bool) -> bool:
    """Asks that daemon to end; returns whether it will. `listen`: our port must be available before it is ended.

    Blocks. Raises AlreadyOwned or InvalidInput for an unavailable port.
    """
    found = address.find(settings.data_dir)
    if found is None:
        return False
    client = ManagerClient(found)
    try:
        daemon = client.daemon()
    except NniManagerError:  # taking the lock reports its owner
        return False
    if not daemon["endsByItself"]:
        return False
    if listen:
        _require_port(settings, [str(one["address"]) for one in daemon["listeners"]])
    log.info("taking over from process %d, which nnictl started", daemon["pid"], extra={"action": "take over"})
    client.stop_daemon()
    return True


def _require_port(settings: Settings, addresses: list[str]) -> None:
    if settings.port and any(text.rpartition(":")[2].partition("/")[0] == str(settings.port) for text in addresses):
        raise AlreadyOwned(
            f"port {settings.port} is an experiment's own, which stays there; choose another with --port"
        )
    reserve(settings.host, settings.port).give_back()
