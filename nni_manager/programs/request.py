"""The request that creates an experiment, on this machine's daemon or another's, with its secrets."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nni_manager.client.caller import own_environment
from nni_manager.domain.errors import InvalidInput

if TYPE_CHECKING:
    from nni_manager.client.caller import ChosenDaemon
    from nni_manager.client.manager_client import ManagerClient
    from nni_manager.programs.spelling import Spelling


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The text of an experiment file."""

    text: str
    #: Absolute folder where relative paths in it start.
    directory: str
    #: Its name in messages; may be empty.
    file: str = ""
    #: Path or name, on the daemon's machine, of the Python for a user's tuner; empty: the daemon chooses.
    python: str = ""
    #: Whether the folder is sent to a daemon on this machine, too, which keeps a copy of it.
    is_sent: bool = False
    #: The names of fields in messages, where a program gave them.
    spelling: Spelling | None = None

    @property
    def chosen(self) -> dict[str, str]:
        return {"interpreter": self.python} if self.python else {}


def prepare(
    source: Source,
    place: ChosenDaemon,
    connect: Callable[[], ManagerClient],
    warn: Callable[[Iterable[str]], None],
) -> tuple[ManagerClient, dict[str, Any]]:
    """(client of the daemon, fields of the request to create the experiment).

    `connect` is called after the local checks of the config. A daemon on this machine also gets the environment and the
    base folder of relative paths. One on another machine gets the config, its secrets and the packed code. Raises
    ConfigInvalid, InvalidInput and the exceptions of `connect`.
    """
    return _elsewhere(source, connect, warn) if place.is_remote else _here(source, place, connect)


def _here(
    source: Source, place: ChosenDaemon, connect: Callable[[], ManagerClient]
) -> tuple[ManagerClient, dict[str, Any]]:
    from nni_manager.config import class_arguments

    environment = own_environment()
    class_arguments.check_text(
        source.text, source.directory, source.file, place.data_directory, source.python, environment
    )
    fields: dict[str, Any] = {
        "config": source.text,
        "directory": source.directory,
        "environment": environment,
        "file": source.file,
    }
    client = connect()
    if source.is_sent:
        from nni_manager.programs.sent_config import send_code

        fields |= {"code": send_code(client, Path(source.directory)), "directory": ""}
    return client, {**fields, **source.chosen}


def _elsewhere(
    source: Source, connect: Callable[[], ManagerClient], warn: Callable[[Iterable[str]], None]
) -> tuple[ManagerClient, dict[str, Any]]:
    from nni_manager.programs import sent_config

    config, secrets, code, warnings = sent_config.read(source.text, source.directory, source.file, os.environ)
    with sent_config.collecting(code, source.python, secrets, config) as origin:  # during the upload
        client = connect()
        warn(warnings)  # the manager gets the parsed config, so it cannot warn
        sent = sent_config.send_code(client, code)
    fields = {"config": sent_config.as_text(config), "code": sent, "file": source.file, "provenance": origin.result()}
    return client, {**fields, **source.chosen, **({"secrets": secrets} if secrets else {})}


def require_secrets(references: Iterable[str], environment: Mapping[str, str]) -> dict[str, str]:
    """The values of secrets, reference → value. Raises InvalidInput, naming all that are missing."""
    found = {reference: _follow(reference, environment) for reference in references}
    missing = [f"{reference} {value}" for reference, value in found.items() if isinstance(value, ValueError)]
    if missing:
        raise InvalidInput("; ".join(missing))
    return {reference: value for reference, value in found.items() if isinstance(value, str)}


#: Which of the references that a manager elsewhere asks for may be looked up here. Raises InvalidInput: none may.
Allow = Callable[[Sequence[str]], Collection[str]]


def secrets_of_experiment(
    client: ManagerClient, id: str, environment: Mapping[str, str], allow: Allow
) -> dict[str, dict[str, str]]:
    """The secrets of an experiment's config that can be looked up here, as ``{"secrets": …}``, or empty.

    The daemon keeps its values for the others. `allow` is asked unless the daemon is the caller's own, because a
    manager may name any file and variable of this machine.
    """
    references = list(client.experiment(id)["references"])
    if references and not client.is_here:  # before any lookup, which would already reveal what exists
        allowed = allow(references)
        references = [reference for reference in references if reference in allowed]
    found = {reference: _follow(reference, environment) for reference in references}
    values = {reference: value for reference, value in found.items() if isinstance(value, str)}
    return {"secrets": values} if values else {}


def refuse_secrets(asked: Iterable[str], advice: str) -> InvalidInput:
    """The error about references that may not be looked up. `advice`: how to allow them."""
    return InvalidInput(f"the manager asks for secrets of this machine: {', '.join(asked)}; {advice}")


def _follow(reference: str, environment: Mapping[str, str]) -> str | ValueError | None:
    from nni_manager.config.secrets import follow

    try:
        return follow(reference, environment)
    except ValueError as error:
        return error
