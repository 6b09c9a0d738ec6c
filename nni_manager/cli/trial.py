"""`nnictl trial`: the trials of an experiment."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from nni_manager.cli import selection
from nni_manager.cli.chosen_trial import choose_trial, trial_help
from nni_manager.cli.experiment import json_option
from nni_manager.cli.output import compact, duration, echo, echo_json, facts, moment, number, table
from nni_manager.cli.session import Connect, connected, same_daemon
from nni_manager.domain.metrics import OptimizeMode
from nni_manager.domain.text import printable
from nni_manager.domain.trial import TrialStatus, reason_in_words

if TYPE_CHECKING:
    from nni_manager.client.manager_client import ManagerClient

trial_option = click.option(
    "--trial_id", "--trial-id", "-T", "trial_id", required=True, metavar="TRIAL", help=trial_help
)
_HEADERS = ("NO", "ID", "STATUS", "RESULT", "TIME", "WHERE", "WHY", "PARAMETERS")
#: The most trials that the API answers at once.
_MOST = 10_000


@click.group()
def trial() -> None:
    """List, show and kill trials."""


@trial.command("ls")
@connected
@selection.id_argument
@click.option("--head", type=click.IntRange(1, _MOST), metavar="N", help="Only the N best results, best first.")
@click.option("--tail", type=click.IntRange(1, _MOST), metavar="N", help="Only the N worst results, worst first.")
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
@json_option
def show(connect: Connect, *, id: str | None, trial_id: str, as_json: bool) -> None:
    """Show everything about a trial, and the last lines of its stderr if it failed."""
    client = connect()
    id_ = selection.choose(client, id)
    found = choose_trial(client, id_, trial_id)
    if as_json:
        echo_json(found)
        return
    click.echo(facts(_facts(found)))
    for attempt in found["attempts"]:
        if words := _last_words(attempt):
            click.echo(f"\nlast lines of the stderr of attempt {attempt['number']}:\n{words}")
    click.echo(f"\n`nnictl log trial {id_} -T {found['id']}{same_daemon()}` shows all that it wrote.")


@trial.command()
@connected
@selection.id_argument
@trial_option
def kill(connect: Connect, *, id: str | None, trial_id: str) -> None:
    """Ask a trial to end."""
    client = connect()
    id_ = selection.choose(client, id)
    found = choose_trial(client, id_, trial_id)
    if TrialStatus(found["status"]).is_final:
        click.echo(f"Trial {found['id']} has ended already: {found['status']}.")
        return
    client.kill_trial(id_, found["id"])
    click.echo(f"Trial {found['id']} is asked to end.")


def _find(client: ManagerClient, id: str, head: int | None, tail: int | None) -> list[dict[str, Any]]:
    if head is None and tail is None:
        return list(client.all_trials(id))
    maximizes = client.experiment(id).get("optimizeMode") != OptimizeMode.MINIMIZE
    order = "-final" if bool(head) == maximizes else "final"
    answer = client.trials(id, status=TrialStatus.SUCCEEDED, order=order, limit=head or tail or _MOST)
    return [trial for trial in answer["trials"] if trial["finalValue"] is not None]


def _row(trial: dict[str, Any]) -> tuple[str, ...]:
    return (
        str(trial["sequenceId"]), trial["id"], trial["status"], _result(trial), _time(trial),
        trial["place"] or trial["service"] or "", _why(trial), compact(trial["parameters"]),
    )  # fmt: skip


def _result(trial: dict[str, Any]) -> str:
    """Without a number, as for NaN or a list: what was reported. While it runs: its last intermediate result."""
    value = trial["finalValue"]
    if value is None and trial["lastValue"] is not None and not TrialStatus(trial["status"]).is_final:
        return f"{number(trial['lastValue'])} so far"
    return number(value) if value is not None else str(trial["finalResult"] or "")


def _time(trial: dict[str, Any]) -> str:
    """Of one that runs: until now."""
    started, ended = trial["startedMs"], trial["endedMs"]
    if started is None:
        return ""
    return duration((ended if ended is not None else time.time() * 1000) / 1000 - started / 1000)


def _why(trial: dict[str, Any]) -> str:
    if trial["wait"]:
        return str(trial["wait"]["sentence"])
    return reason_in_words(trial["reason"], trial["message"])


def _facts(trial: dict[str, Any]) -> dict[str, str]:
    return {
        "id": trial["id"],
        "number": str(trial["sequenceId"]),
        "status": trial["status"],
        "why": _why(trial),
        "result": _result(trial),
        "last intermediate": number(trial["lastValue"]),
        "intermediates": str(trial["intermediates"]),
        "parameters": compact(trial["parameters"]),
        "started": moment(trial["startedMs"]),
        "ended": moment(trial["endedMs"]),
        "time": _time(trial),
        "where": trial["place"] or trial["service"] or "",
        "page": trial["link"],
        "folder": trial["logPath"],
        **{f"attempt {attempt['number']}": _attempt(attempt) for attempt in trial["attempts"]},
    }


def _attempt(attempt: dict[str, Any]) -> str:
    code = f"exit code {attempt['exitCode']}" if attempt["exitCode"] is not None else ""
    signal = f"signal {attempt['signal']}" if attempt["signal"] is not None else ""
    job = f"job {attempt['jobName']} on {attempt['service']}"
    return ", ".join(filter(None, (attempt["state"], code, signal, attempt["message"], attempt["place"], job)))


def _last_words(attempt: dict[str, Any]) -> str:
    """The runner is nearer to it than the platform."""
    return printable((attempt["runnerExit"] or {}).get("stderrTail") or attempt["stderrTail"]).rstrip()
