"""The trial that a command means: its id, the beginning of one, or its number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from nni_manager.cli.selection import listing
from nni_manager.cli.session import same_daemon
from nni_manager.domain.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from nni_manager.client.manager_client import ManagerClient

trial_help = "Its id, the beginning of one, or its number."


def choose_trial(client: ManagerClient, id: str, given: str) -> dict[str, Any]:
    """The trial that is meant, with its attempts. Raises NotFound, or InvalidInput where several could be meant."""
    if not given.strip():
        raise InvalidInput("the trial is empty, perhaps an unset variable; give the id or the number of a trial")
    if given.isascii() and given.isdecimal():  # ids begin with a letter
        return client.trial(id, _numbered(client, id, int(given)))
    try:
        return client.trial(id, given)
    except NotFound:
        return client.trial(id, _beginning(client, id, given))


def _numbered(client: ManagerClient, id: str, number: int) -> str:
    # numbers are given in the order that the list has
    found = client.trials(id, limit=1, offset=number)["trials"] if number < 2**53 else []
    return str(found[0]["id"]) if found and found[0]["sequenceId"] == number else _refuse(id, str(number))


def _beginning(client: ManagerClient, id: str, given: str) -> str:
    found = [str(trial["id"]) for trial in client.all_trials(id) if trial["id"].startswith(given)]
    if len(found) > 1:
        raise InvalidInput(f"trial {given} may be {listing(found)}; give more of the id")
    return found[0] if found else _refuse(id, given)


def _refuse(id: str, given: str) -> NoReturn:
    raise NotFound(f"there is no trial {given}; `nnictl trial ls {id}{same_daemon()}` shows every trial")
