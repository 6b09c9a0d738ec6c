"""`nni-manager status`, `stop`, `doctor` and `identity`: daemon, requirements, data directory."""

from __future__ import annotations

import json
import os
import select
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nni_manager.cli import output
from nni_manager.cli.command_group import FAILED
from nni_manager.cli.experiment import selection
from nni_manager.cli.experiment.listing import json_option
from nni_manager.cli.experiment.update import stop as stop_experiments
from nni_manager.cli.output import echo, echo_json, facts
from nni_manager.cli.session import ManagerClient, current, daemon_options, data_directory_option
from nni_manager.client.caller import connect, resolve_data_directory
from nni_manager.client.formats import moment
from nni_manager.domain.environment import data_directory
from nni_manager.domain.errors import Conflict, InvalidInput

if TYPE_CHECKING:
    from nni_manager.app.doctor.finding import CheckFinding


#: Seconds to wait for the daemon's end.
_PATIENCE_S = 10


@click.command()
@daemon_options
@json_option
def status(*, as_json: bool, **_: object) -> None:
    """Show whether the daemon runs. Exit code 1 if it does not."""
    client = _running()
    if client is None:
        raise click.ClickException(f"{_none()}; `nni-manager serve`, `nnictl create` or `nnictl resume` starts one")
    daemon, found = client.daemon(), client.experiments()
    if as_json:
        echo_json(daemon)
        return
    at_work = [one["id"] for one in found if selection.is_open(one)]
    echo(
        facts(
            {
                "daemon": f"process {daemon['pid']}, version {daemon['version']}",
                "since": moment(daemon["startedMs"]),
                "data": daemon["dataDirectory"],
                **{one["kind"]: one["address"] for one in daemon["listeners"]},
                "experiments": f"{len(found)}, open: {selection.listing(at_work) or 'none'}",
                "ends": "with the last open experiment" if daemon["endsByItself"] else "on request",
            },
            output.terminal_width(),
        )
    )


@click.command()
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option("--port", "-p", type=click.IntRange(1, 65535), help="The experiment with this port.")
@click.option("--all", "-a", "everything", is_flag=True, help="Every open experiment.")
@daemon_options
def stop(*, ids: tuple[str, ...], port: int | None, everything: bool, **_: object) -> None:
    """End the daemon. Trials keep running, and the next daemon continues them.

    With IDs, a port or --all: stop these experiments, as `nnictl stop` does.
    """
    if ids or port is not None or everything:
        context = click.get_current_context()
        context.invoke(stop_experiments, **context.params)
        return
    client = _running()
    if client is None:
        echo(f"{_none()}.")
        return
    _end(client)


def _end(client: ManagerClient) -> None:
    daemon = client.daemon()
    at_work = [one["id"] for one in client.experiments() if selection.is_open(one)]
    process = None
    if client.is_here:
        with suppress(OSError):  # in another container, the process has another id
            process = os.pidfd_open(daemon["pid"])
    client.stop_daemon()
    has_ended = process is None or bool(select.select([process], [], [], _PATIENCE_S)[0])
    if process is not None:
        os.close(process)
    echo(f"The daemon, process {daemon['pid']}, {'has ended' if has_ended else 'was asked to end'}.")
    if at_work:
        echo(f"Trials of open experiments keep running: {selection.listing(at_work)}. The next daemon continues them.")


def _running() -> ManagerClient | None:
    """A client of the chosen daemon, or None if none runs. Raises NniManagerError if it cannot be reached."""
    from nni_manager.client.daemon import find_running
    from nni_manager.client.manager_client import ManagerClient

    place = current()
    if place.is_remote:
        return connect(place)
    address = find_running(place.data_directory)
    return ManagerClient(address) if address is not None else None


def _none() -> str:
    return f"no daemon runs for {current().data_directory}"


_COLOURS = {"OK": "green", "NOTE": "cyan", "WARN": "yellow", "FAIL": "red"}


@click.command()
@data_directory_option
@click.option("--config", "-c", type=click.Path(path_type=Path), metavar="FILE", help="An experiment file to check.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def doctor(*, data_dir: str | None, config: Path | None, as_json: bool) -> None:
    """Check disk, ports, clock, keeper and tuners. Changes nothing.

    Exit code 0 if no check fails, else 1.
    """
    from nni_manager.app.doctor.examination import examine

    found = _printed(examine(data_directory(data_dir, os.environ), os.environ, config=config), quiet=as_json)
    if as_json:
        echo(json.dumps([asdict(finding) for finding in found], indent=2, ensure_ascii=False))
    else:
        echo(_summary([finding.verdict for finding in found]))
    sys.exit(FAILED if any(finding.verdict == "FAIL" for finding in found) else 0)


def _printed(findings: Iterator[CheckFinding], *, quiet: bool) -> list[CheckFinding]:
    """The findings as a list. Unless `quiet`, each is printed at once, because some checks take a second."""
    found = []
    for finding in findings:
        found.append(finding)
        if not quiet:
            echo(_line(finding))
    return found


def _line(finding: CheckFinding) -> str:
    verdict = output.coloured(f"{finding.verdict:<4}", _COLOURS[finding.verdict])
    advice = f": {finding.advice}" if finding.advice else ""
    return f"{verdict}  {finding.check:<14}  {' '.join(finding.sentence.split())}{advice}"


def _summary(verdicts: Iterable[str]) -> str:
    counts = {verdict: 0 for verdict in _COLOURS}
    for verdict in verdicts:
        counts[verdict] += 1
    if counts["FAIL"]:
        return f"{counts['FAIL']} of {sum(counts.values())} checks failed."
    warned = f", {counts['WARN']} with a warning" if counts["WARN"] else ""
    noted = f", {counts['NOTE']} with a note" if counts["NOTE"] else ""
    return f"All {sum(counts.values())} checks passed{warned}{noted}."


@click.command()
@click.option("--moved", is_flag=True, help="It was moved here; no other manager uses the original.")
@click.option("--own", is_flag=True, help="It is a copy: give it a new name.")
@data_directory_option
def identity(*, moved: bool, own: bool, data_dir: str | None) -> None:
    """Show or change the data directory's name.

    Other machines know each data directory by a name. --moved: the directory was moved, and still owns its trials.
    --own: it is a copy, which gets a new name and new folders; the trials belong to the original.
    """
    from nni_manager.app import identity as names

    directory = resolve_data_directory(data_dir)
    if moved and own:
        raise InvalidInput("--moved and --own exclude each other; give one of them")
    if names.known(directory) == names.NOBODY:
        raise InvalidInput(f"{directory} has no name yet, because no daemon has used it; start one first")
    if moved and names.is_lost(directory):
        _restore_lost(directory)
    elif moved:
        names.claim(directory)
        echo(
            f"{names.known(directory)} is now in {directory}. The daemon connects to machines again within minutes, or"
        )
        echo("at once with `nnictl resume ID`.")
    elif own:
        _separate(directory)
    else:
        echo(f"{names.known(directory)} in {directory}")


def _require_no_daemon(directory: Path) -> None:
    from nni_manager.client.data_directory import is_taken

    if is_taken(directory):
        raise Conflict(
            f"the daemon of {directory} is running; end it first with `nni-manager stop` (trials keep running)"
        )


def _restore_lost(directory: Path) -> None:
    """Restore the directory's name from its experiments."""
    from nni_manager.app import identity as names
    from nni_manager.app import index_file

    _require_no_daemon(directory)
    present = names.known(directory)
    found = sorted(index_file.owners(directory) - {present})
    if len(found) > 1:
        raise InvalidInput(
            f"the experiments in {directory} belong to several managers: {', '.join(found)}. Move those of other"
            " managers away, or give this directory a new name with --own"
        )
    names.claim(directory, *(found or [present]))
    echo(f"{names.known(directory)} is the name of {directory} again. Start the daemon to continue its experiments.")


def _separate(directory: Path) -> None:
    from nni_manager.app import identity as names
    from nni_manager.app import index_file

    _require_no_daemon(directory)
    before = names.known(directory)
    lost = index_file.owners(directory) if names.is_lost(directory) else ()
    echo(f"The name of {directory} is now {names.separate(directory, lost)}, no longer {before}.")
