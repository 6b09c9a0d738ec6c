"""`nnictl trial`: the trials of an experiment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from nni_manager.cli import selection
from nni_manager.cli.experiment import json_option
from nni_manager.cli.output import compact, duration, echo, echo_json, number, table
from nni_manager.cli.session import Connect, connected
from nni_manager.domain.trial import TrialStatus

if TYPE_CHECKING:
    from nni_manager.client.manager_client import ManagerClient

trial_option = click.option("--trial_id", "--trial-id", "-T", "trial_id", required=True, metavar="TRIAL")
_HEADERS = ("NO", "ID", "STATUS", "RESULT", "TIME", "WHERE", "WHY", "PARAMETERS")
#: The most trials that the API answers at once.
_MOST = 10_000


@click.group()
def trial() -> None:
    """List and kill trials."""


@trial.command("ls")
@connected
@selection.id_argument
@click.option("--head", type=click.IntRange(1, _MOST), metavar="N", help="Only the N highest results, highest first.")
@click.option("--tail", type=click.IntRange(1, _MOST), metavar="N", help="Only the N lowest results, lowest first.")
@json_option
def list_trials(connect: Connect, *, id: str | None, head: int | None, tail: int | None, as_json: bool) -> None:
    """List an experiment's trials; with --head or --tail, only those that succeeded."""
    if head and tail:
        raise click.UsageError("give either --head or --tail, not both")
    client = connect()
    found = _find(client, selection.choose(client, id), head, tail)
    if as_json:
        echo_json(found)
    elif found:
        echo(table(_HEADERS, map(_row, found)))
    else:
        click.echo("There is no trial yet.")


@trial.command()
@connected
@selection.id_argument
@trial_option
def kill(connect: Connect, *, id: str | None, trial_id: str) -> None:
    """Ask a trial to end."""
    client = connect()
    client.kill_trial(selection.choose(client, id), trial_id)
    click.echo(f"Trial {trial_id} is asked to end.")


def _find(client: ManagerClient, id: str, head: int | None, tail: int | None) -> list[dict[str, Any]]:
    if head is None and tail is None:
        return list(client.all_trials(id))
    order, status = "-final" if head else "final", TrialStatus.SUCCEEDED
    answer = client.trials(id, status=status, order=order, limit=head or tail or _MOST)
    return [trial for trial in answer["trials"] if trial["finalValue"] is not None]


def _row(trial: dict[str, Any]) -> tuple[str, ...]:
    return (
        str(trial["sequenceId"]), trial["id"], trial["status"], _result(trial), _time(trial),
        trial["place"] or trial["service"] or "", _why(trial), compact(trial["parameters"]),
    )  # fmt: skip


def _result(trial: dict[str, Any]) -> str:
    """Without a number, as for NaN or a list: what was reported."""
    value = trial["finalValue"]
    return number(value) if value is not None else str(trial["finalResult"] or "")


def _time(trial: dict[str, Any]) -> str:
    started, ended = trial["startedMs"], trial["endedMs"]
    return duration((ended - started) / 1000) if started is not None and ended is not None else ""


def _why(trial: dict[str, Any]) -> str:
    if trial["wait"]:
        return str(trial["wait"]["sentence"])
    return ": ".join(text for text in (trial["reason"], trial["message"]) if text)
