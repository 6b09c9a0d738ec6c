"""Checks the daemon of the data directory: does one run, does it answer, has it this version."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from nni_manager import __version__
from nni_manager.app.doctor.finding import CheckFinding, failure, ok, warning
from nni_manager.client import address
from nni_manager.client.manager_client import ManagerClient
from nni_manager.domain.errors import NniManagerError
from nni_manager.platform_kit.lock_holder import lock_holder

_CHECK = "daemon"


def look(data_dir: Path) -> Iterator[CheckFinding]:
    holder = lock_holder(data_dir / "daemon.lock")
    found = address.find(data_dir)
    if found is not None:
        yield _ask(ManagerClient(found))
    elif holder:
        sentence = f"process {holder} owns {data_dir} and cannot be reached"
        yield failure(_CHECK, sentence, "wait if it is just starting; else end that process and try again")
    elif address.read_pointer(data_dir) is not None:
        advice = "start it again: running trials went on, and it takes them up"
        yield warning(_CHECK, "the last daemon did not end by itself, and none runs now", advice)
    else:
        yield ok(_CHECK, "none runs; `nnictl create` starts one")


def open_ports(data_dir: Path) -> dict[int, str]:
    """TCP port → kind of listener, of the running daemon; empty when none runs or answers."""
    found = address.find(data_dir)
    if found is None:
        return {}
    try:
        listeners = ManagerClient(found).daemon()["listeners"]
    except NniManagerError:
        return {}
    return {int(d["address"].rpartition(":")[2]): str(d["kind"]) for d in listeners if d["kind"] != "control"}


def _ask(client: ManagerClient) -> CheckFinding:
    try:
        known = client.daemon()
    except NniManagerError as error:
        return failure(_CHECK, f"a daemon runs and does not answer: {error}", "see its log, or end it and try again")
    sentence = f"process {known['pid']} runs version {known['version']} with {known['experiments']} experiments"
    if known["version"] != __version__:
        return warning(_CHECK, f"{sentence}; this command is {__version__}", "restart it: running trials go on")
    return ok(_CHECK, sentence)
