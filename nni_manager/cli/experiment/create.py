"""`nnictl create`, `resume` and `view` open an experiment; `plan` shows where its first trials would run."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

import click

from nni_manager.cli.experiment import selection
from nni_manager.cli.experiment.secrets import allowed_secrets, secret_option
from nni_manager.cli.experiment.watch import follow, held_interrupts, stop_interrupted
from nni_manager.cli.output import echo, echo_json, facts, warn
from nni_manager.cli.session import (
    Connect,
    ManagerClient,
    connected,
    current,
    finder,
    same_daemon,
    tuner_python_option,
)
from nni_manager.client import endpoints
from nni_manager.client.caller import is_text, program
from nni_manager.domain.errors import InvalidInput, NniManagerError
from nni_manager.programs import progress
from nni_manager.programs.following import FollowedExperiment
from nni_manager.programs.request import Source, prepare, secrets_of_experiment

Function = TypeVar("Function", bound=Callable[..., Any])

_foreground = click.option("--foreground", "-f", is_flag=True, help="Show progress until the experiment ends.")
_nni_output = click.option("--nni-output", is_flag=True, help="Add NNI's lines.  [default: not on a terminal]")
_debug = click.option("--debug", "-d", is_flag=True, help="Run as if the experiment file set `debug: true`.")
_url_prefix = click.option(
    "--url_prefix", "--url-prefix", "-u", metavar="PATH", help="Prefix of every path of the page."
)
_directory = click.option(
    "--experiment_dir",
    "--experiment-dir",
    "-e",
    metavar="FOLDER",
    help="Parent folder of the experiment's folder, if it was moved or copied.",
)


def _port(function: Function) -> Function:
    text = (
        "Port of the experiment, for its page and NNI's API; 0: any free port.  [default without a service:"
        " $NNI_MANAGER_PORT, else 8080, or the next free port]"
    )
    return click.option("--port", "-p", type=click.IntRange(0, 65535), help=text)(function)


@click.command()
@connected
@click.option("--config", "-c", required=True, metavar="FILE", help="The experiment file, YAML or JSON.")
@_port
@_url_prefix
@_debug
@_foreground
@_nni_output
@tuner_python_option
def create(
    connect: Connect,
    *,
    config: str,
    port: int | None,
    url_prefix: str | None,
    debug: bool,
    foreground: bool,
    nni_output: bool,
    tuner_python: str,
) -> None:
    """Start an experiment, and the daemon if none runs."""
    client, experiment = sent(connect, config, program(tuner_python))
    with held_interrupts("started") as held:
        id_ = _made(client, endpoint=endpoints.wish(current(), port, url_prefix), debug=debug, **experiment)
        _tell(client, id_, "started", nni_output=nni_output)
    _go_on(connect, id_, held, foreground=foreground)


def _made(client: ManagerClient, **experiment: Any) -> str:
    """The new experiment's id. Raises the exceptions of `ManagerClient.create`."""
    from nni_manager.client.connection import NobodyListens, Unreachable

    try:
        return client.create(**experiment)
    except NobodyListens:
        raise
    except Unreachable as error:
        raise NniManagerError(
            f"{error} The experiment may have started; run `nnictl experiment list` before you try again"
        ) from None


@click.command()
@connected
@click.argument("id")
@_port
@_debug
@_foreground
@_nni_output
@_directory
@secret_option
@click.option(
    "--no-secrets", is_flag=True, help="Send no secrets: a manager on another machine keeps those that it has."
)
def resume(
    connect: Connect,
    *,
    id: str,
    secrets: tuple[str, ...],
    no_secrets: bool,
    port: int | None,
    debug: bool,
    foreground: bool,
    nni_output: bool,
    experiment_dir: str | None,
) -> None:
    """Open a stopped experiment, or continue one on hold."""
    client = connect()
    id_ = id if experiment_dir else selection.choose(client, id)
    sent_secrets = {}
    if not experiment_dir and not no_secrets:
        allow = allowed_secrets(secrets, ", or --no-secrets to keep those that it has")
        sent_secrets = secrets_of_experiment(client, id_, os.environ, allow)
    # without --foreground, Ctrl-C does not stop it: an experiment on hold may have running trials
    nothing: AbstractContextManager[list[int]] = nullcontext([])
    with held_interrupts("gone on") if foreground else nothing as held:
        client.resume(
            id_,
            endpoint=endpoints.wish(current(), port),
            working_directory=_absolute(experiment_dir),
            debug=debug,
            **sent_secrets,
        )
        if found := more_trials(client.experiment(id_)):
            warn([found])
        _tell(client, id_, "is running again", nni_output=nni_output)
    _go_on(connect, id_, held, foreground=foreground)


@click.command()
@connected
@click.argument("id")
@_port
@_nni_output
@_directory
def view(connect: Connect, *, id: str, port: int | None, nni_output: bool, experiment_dir: str | None) -> None:
    """Open a stopped experiment for reading. `nnictl stop` closes it again."""
    client = connect()
    id_ = id if experiment_dir else selection.choose(client, id)
    client.view(id_, endpoint=endpoints.wish(current(), port), working_directory=_absolute(experiment_dir))
    what = f"is open for reading only; `nnictl stop {id_}{same_daemon()}` closes it"
    _tell(client, id_, what, nni_output=nni_output)


def sent(connect: Connect, file: str, python: str) -> tuple[ManagerClient, dict[str, Any]]:
    """(client of the daemon, fields of the request to create the experiment). `python`: as in `Source`."""
    from nni_manager.config.reading.source import read_text

    path = Path(os.path.abspath(os.path.expanduser(file)))
    if not is_text(str(path)):
        raise InvalidInput(f"--config {str(path)!a}: a name in this path is not UTF-8; rename that folder or file")
    source = Source(text=read_text(str(path)), directory=str(path.parent), file=file, python=python)
    return prepare(source, current(), connect, warn)


def _go_on(connect: Connect, id: str, interrupts: list[int], *, foreground: bool) -> None:
    experiment = FollowedExperiment(id, connect, finder())
    if interrupts:
        sys.exit(stop_interrupted(experiment))
    if foreground:
        sys.exit(follow(experiment, progress.display_for(sys.stdout), where=same_daemon()))


def _tell(client: ManagerClient, id: str, what: str, *, nni_output: bool) -> None:
    """Print three lines about an experiment: name and id, page, logs. Warnings go to stderr.

    NNI's lines follow with `nni_output`, or if a program reads the output.
    """
    found = client.experiment(id)
    page = endpoints.page(found, client, current())
    name = f" ({found['name']})" if found["name"] else ""
    without = f"none, because the daemon listens on no port; `nnictl resume {id} --port 8080{same_daemon()}` opens one"
    echo(f"Experiment {id}{name} {what}.")
    echo(facts({"Page": page or without, "Logs": found["logPath"]}))
    if nni_output or not is_terminal():
        echo(_as_nni(id, page))
    warn(warning["message"] for warning in found["warnings"])


def is_terminal() -> bool:
    """Whether the output goes to a terminal."""
    return sys.stdout.isatty()


def _as_nni(id: str, page: str) -> str:
    """The lines of NNI 2 and NNI 3 with id and address, for scripts that search for them."""
    lines = [f"The experiment id is {id}", f"Experiment ID: {id}"]
    if address := page.rstrip("/"):
        lines += [f"The Web UI urls are: {address}", f"Web portal URLs: {address}"]
    return "\n".join(lines)


def _absolute(path: str | None) -> str | None:
    """The absolute path of a folder; unchanged for a manager on another machine."""
    if path is None or current().is_remote:
        return path
    return os.path.abspath(os.path.expanduser(path))


#: Term in the reason → the `nnictl update` command that changes it.
_COMMANDS = {
    "maxTrialNumber": "trialnum {} -v NUMBER",
    "maxExperimentDuration": "duration {} -v DURATION",
    "the tuner": "searchspace {} -f FILE",
}


def more_trials(state: Mapping[str, Any]) -> str:
    """Why an experiment creates no more trials, with a command for each reason; empty while it does."""
    reason, id_ = state.get("noMoreTrials") or "", state["id"]
    commands = [
        f"`nnictl update {text.format(id_)}{same_daemon()}`" for what, text in _COMMANDS.items() if what in reason
    ]
    return f"it creates no more trials: {reason}; for more, run {' and '.join(commands)}" if reason else ""


@click.command()
@connected
@click.option("--config", "-c", required=True, metavar="FILE", help="The experiment file, YAML or JSON.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def plan(connect: Connect, *, config: str, as_json: bool) -> None:
    """Show where first trials would run, and why not elsewhere.

    Starts nothing.
    """
    client, experiment = sent(connect, config, "")
    services = client.plan(**experiment)
    if as_json:
        echo_json(services)
    else:
        echo("\n".join(line for service in services for line in _lines(service)))


def _lines(service: dict[str, Any]) -> list[str]:
    name, trials, places = service["service"], service["trials"], service["places"]
    if service["trouble"]:
        return [f"{name}: cannot be reached: {service['trouble']}"]
    if places is None:
        return [f"{name}: the service decides where trials run"]
    now = f"{len(places)} of the first {trials} trials would start now" if trials > 1 else _only(places)
    return [
        f"{name}: {now}",
        *(f"  trial {number}: {place}" for number, place in enumerate(places, start=1)),
        *(f"  no more: {why}" for why in service["whyNot"].values()),
    ]


def _only(places: list[str]) -> str:
    return "the first trial would start now" if places else "the first trial would wait"
