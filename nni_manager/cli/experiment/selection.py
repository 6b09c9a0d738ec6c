"""Resolves the experiment and trial of a command.

Accepts an id, its beginning, a trial's number, or, by default, the only open experiment.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import click

from nni_manager.cli.session import Connect, ManagerClient, same_daemon
from nni_manager.domain.errors import InvalidInput, NotFound
from nni_manager.domain.experiment import ExperimentStatus

id_argument = click.argument("id", required=False)
#: The help of an option that names a trial.
trial_help = "Its id, the beginning of one, or its number."


def reach(connect: Connect, given: str | None) -> tuple[ManagerClient, str]:
    """A client of the daemon, and the id of the chosen experiment. Raises as `choose`."""
    client = connect()
    return client, choose(client, given)


def choose(client: ManagerClient, given: str | None) -> str:
    """The id of the chosen experiment. Raises NotFound, or InvalidInput if several match."""
    experiments = _experiments(client, [] if given is None else [given])
    if given is None:
        return _only_open(experiments)
    ids = [experiment["id"] for experiment in experiments]
    return given if given in ids else _only_match(given, ids)


def choose_open(client: ManagerClient, given: Sequence[str]) -> list[str]:
    """The ids of the chosen open experiments; ``ab*`` chooses all that begin with ab.

    A full id may belong to a closed experiment. Closed ones come first, because a daemon may end with the last open
    one.
    """
    experiments = _experiments(client, given)
    if not given:
        return [_only_open(experiments)]
    ids, all_ids = _open_ids(experiments), [experiment["id"] for experiment in experiments]
    chosen = dict.fromkeys(id for text in given for id in _matches(text, ids, all_ids))
    return sorted(chosen, key=lambda id: id in ids)


def choose_closed(client: ManagerClient, given: Sequence[str]) -> list[str]:
    """The ids of the chosen experiments; without `given`, all closed ones.

    ``ab*`` chooses all closed ones that begin with ab. A full id may belong to an open one.
    """
    experiments = _experiments(client, given)
    all_ids = [experiment["id"] for experiment in experiments]
    closed = [experiment["id"] for experiment in experiments if not is_open(experiment)]
    if not given:
        return closed
    return list(dict.fromkeys(id for text in given for id in _matches(text, closed, all_ids, "closed")))


def is_open(experiment: dict[str, Any]) -> bool:
    """Whether an experiment is open, for work or for reading."""
    return bool(experiment["status"] != ExperimentStatus.STOPPED)


def listing(ids: Sequence[str]) -> str:
    """Up to ten ids as text, then the number of others."""
    return ", ".join(ids[:10]) + (f" and {len(ids) - 10} more" if len(ids) > 10 else "")


def _matches(given: str, ids: Sequence[str], all_ids: Sequence[str], kind: str = "open") -> list[str]:
    """The ids that an argument chooses: a full id, the beginning of one, or with ``*`` all of `ids` that match.

    `ids`: of the experiments of `kind` (open or closed).
    """
    if not given.endswith("*"):
        is_begun = any(id.startswith(given) for id in ids)  # else it may belong to a closed one
        return [given] if given in all_ids else [_only_match(given, ids if kind == "open" and is_begun else all_ids)]
    found = [id for id in ids if id.startswith(given[:-1])]
    return found or _refuse(f"no {kind} experiment's id begins with {given[:-1]!r}")


def _only_match(given: str, ids: Sequence[str]) -> str:
    beginning = given.removesuffix("*")
    found = [id for id in ids if id.startswith(beginning)]
    if len(found) > 1:
        raise InvalidInput(f"{given} is ambiguous: {listing(found)}; give more of the id")
    return found[0] if found else _refuse(f"cannot find experiment {given}")


def _only_open(experiments: Sequence[dict[str, Any]]) -> str:
    ids = _open_ids(experiments)
    if len(ids) > 1:
        raise InvalidInput(f"{len(ids)} experiments are open: {listing(ids)}; give the ID of one")
    return ids[0] if ids else _refuse("no experiment is open, so an ID is required")


def _open_ids(experiments: Sequence[dict[str, Any]]) -> list[str]:
    return [experiment["id"] for experiment in experiments if is_open(experiment)]


def _experiments(client: ManagerClient, given: Sequence[str]) -> list[dict[str, Any]]:
    """All experiments, to choose `given` from. Refuses an empty id, which is the beginning of every id."""
    if not all(text.strip() for text in given):
        raise InvalidInput("the ID is empty, perhaps an unset variable; give the ID of an experiment")
    return client.experiments()


def _refuse(sentence: str) -> NoReturn:
    raise NotFound(f"{sentence}; `nnictl experiment list --all` shows every experiment")


def choose_trial(client: ManagerClient, id: str, given: str) -> dict[str, Any]:
    """The chosen trial, with its attempts. Raises NotFound, or InvalidInput if several match."""
    if not given.strip():
        raise InvalidInput("the trial is empty, perhaps an unset variable; give the id or the number of a trial")
    if given.isascii() and given.isdecimal():  # ids begin with a letter
        return client.trial(id, _numbered(client, id, int(given)))
    try:
        return client.trial(id, given)
    except NotFound:
        return client.trial(id, _beginning(client, id, given))


def _numbered(client: ManagerClient, id: str, number: int) -> str:
    # the list is ordered by number
    found = client.trials(id, limit=1, offset=number)["trials"] if number < 2**53 else []
    return str(found[0]["id"]) if found and found[0]["sequenceId"] == number else _refuse_trial(id, str(number))


def _beginning(client: ManagerClient, id: str, given: str) -> str:
    found = [str(trial["id"]) for trial in client.all_trials(id) if trial["id"].startswith(given)]
    if len(found) > 1:
        raise InvalidInput(f"trial {given} is ambiguous: {listing(found)}; give more of the id")
    return found[0] if found else _refuse_trial(id, given)


def _refuse_trial(id: str, given: str) -> NoReturn:
    raise NotFound(f"cannot find trial {given}; `nnictl trial ls {id}{same_daemon()}` shows every trial")
