"""`nnictl trial`: the trials of an experiment, as a table with a column for each parameter."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from nni_manager.cli import output
from nni_manager.cli.command_group import LateGroup
from nni_manager.cli.experiment import selection
from nni_manager.cli.experiment.listing import json_option
from nni_manager.cli.experiment.selection import choose_trial, trial_help
from nni_manager.cli.output import Column, Row, echo, echo_json, facts, flat
from nni_manager.cli.session import Connect, ManagerClient, connected, same_daemon, to_read
from nni_manager.client.formats import compact, moment, number, objectives
from nni_manager.domain.formats import duration
from nni_manager.domain.metrics import OptimizeMode
from nni_manager.domain.text import printable
from nni_manager.domain.trial import reason_in_words
from nni_manager.domain.trial_status import TrialStatus
from nni_manager.programs.waiting import without_best

trial_option = click.option(
    "--trial_id", "--trial-id", "-T", "trial_id", required=True, metavar="TRIAL", help=trial_help
)
#: Trials per request: the API's maximum.
_MOST = 10_000


@click.group(cls=LateGroup, late={"download": "trial.log:download"})
def trial() -> None:
    """List, show and kill trials."""


@trial.command("ls")
@to_read
@selection.id_argument
@click.option(
    "--head", type=click.IntRange(1, _MOST), metavar="N", help="Only the N trials with the best results, best first."
)
@click.option(
    "--tail", type=click.IntRange(1, _MOST), metavar="N", help="Only the N trials with the worst results, worst first."
)
@click.option(
    "--status",
    type=click.Choice([status.value for status in TrialStatus], case_sensitive=False),
    metavar="STATUS",
    help=f"Only those with this status: {', '.join(TrialStatus)}.",
)
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Only the N newest.")
@json_option
def list_trials(
    connect: Connect,
    *,
    id: str | None,
    head: int | None,
    tail: int | None,
    status: str | None,
    limit: int | None,
    as_json: bool,
) -> None:
    """List an experiment's trials. With --head or --tail, only successful ones."""
    if head and tail:
        raise click.UsageError("give either --head or --tail, not both")
    if (head or tail) and (status or limit):
        raise click.UsageError("--head and --tail list only successful trials; remove --status and --limit")
    client, id_ = selection.reach(connect, id)
    ranked = bool(head or tail)
    found = _best_or_worst(client, id_, head, tail) if ranked else _find(client, id_, status, limit)
    if as_json:
        echo_json(found)
    elif found:
        echo(table_text(found, output.terminal_width()))
    else:
        echo(f"No trial has the status {status}." if status else _none(client, id_) if ranked else _NONE)


_NONE = "No trials yet."


def _none(client: ManagerClient, id: str) -> str:
    counts = client.experiment(id)["counts"]
    if not counts:
        return _NONE
    succeeded = bool(counts.get(TrialStatus.SUCCEEDED))
    why = without_best(id) if succeeded else f"no trial has succeeded yet; `nnictl trial ls {id}` shows all"
    return f"{why[0].upper()}{why[1:]}."


@trial.command()
@to_read
@selection.id_argument
@trial_option
@json_option
def show(connect: Connect, *, id: str | None, trial_id: str, as_json: bool) -> None:
    """Show everything about a trial. If it failed, the last lines of its stderr are shown, too."""
    client, id_ = selection.reach(connect, id)
    found = choose_trial(client, id_, trial_id)
    if as_json:
        echo_json(found)
        return
    echo(facts(_facts(found), output.terminal_width()))
    for attempt in found["attempts"]:
        if words := _last_words(attempt):
            echo(f"\nlast lines of the stderr of attempt {attempt['number']}:\n{words}")
    echo(f"\n`nnictl log trial {id_} -T {found['id']}{same_daemon()}` shows its whole log.")


@trial.command()
@connected
@selection.id_argument
@trial_option
def kill(connect: Connect, *, id: str | None, trial_id: str) -> None:
    """Stop a trial."""
    client, id_ = selection.reach(connect, id)
    found = choose_trial(client, id_, trial_id)
    if TrialStatus(found["status"]).is_final:
        echo(f"Trial {found['id']} has already ended: {found['status']}.")
        return
    client.kill_trial(id_, found["id"])
    echo(f"Trial {found['id']} was asked to stop.")


def _best_or_worst(client: ManagerClient, id: str, head: int | None, tail: int | None) -> list[dict[str, Any]]:
    state = client.experiment(id)
    if state.get("objectives"):
        raise click.ClickException(
            f"experiment {id} optimizes {objectives(state)}, so its trials have no single order; `nnictl"
            f" experiment show {id}` shows the best"
        )
    maximizes = state.get("optimizeMode") != OptimizeMode.MINIMIZE
    order = "-final" if bool(head) == maximizes else "final"
    answer = client.trials(id, status=TrialStatus.SUCCEEDED, order=order, limit=head or tail or _MOST)
    return [trial for trial in answer["trials"] if trial["finalValue"] is not None]


def _find(client: ManagerClient, id: str, status: str | None, limit: int | None) -> list[dict[str, Any]]:
    """The trials of an experiment by number, all or those with `status`; with `limit` only the newest."""
    if limit is None or limit > _MOST:
        return list(client.all_trials(id, status=status))[-(limit or 0) :]
    newest: list[dict[str, Any]] = client.trials(id, status=status, order="-sequence", limit=limit)["trials"]
    return newest[::-1]


def _facts(trial: dict[str, Any]) -> dict[str, str]:
    return {
        "id": trial["id"],
        "number": str(trial["sequenceId"]),
        "status": trial["status"],
        "why": why(trial),
        "result": result(trial),
        "last intermediate": number(trial["lastValue"]),
        "intermediates": str(trial["intermediates"]),
        "parameters": compact(trial["parameters"]),
        "started": moment(trial["startedMs"]),
        "ended": moment(trial["endedMs"]),
        "time": time_taken(trial),
        "code state": str(trial.get("codeState") or ""),
        "where": trial["place"] or trial["service"] or "",
        "page": trial["link"],
        "folder": trial["logPath"],
        **{f"attempt {attempt['number']}": _attempt(attempt) for attempt in trial["attempts"]},
    }


def _attempt(attempt: dict[str, Any]) -> str:
    code = f"exit code {attempt['exitCode']}" if attempt["exitCode"] is not None else ""
    signal = f"signal {attempt['signal']}" if attempt["signal"] is not None else ""
    job = f"job {attempt['jobName']} on {attempt['service']}"
    words = (attempt["state"], code, signal, attempt["message"], attempt["place"], job, _out_of_reach(attempt))
    return ", ".join(filter(None, words))


def _out_of_reach(attempt: dict[str, Any]) -> str:
    """When and why an attempt was last unreachable, and how often before; empty: never."""
    times = attempt["interruptions"]
    if attempt["unreachableMs"] is not None:
        return f"unreachable since {moment(attempt['unreachableMs'])}: {attempt['unreachable']}"
    if not times:
        return ""
    last, often = times[-1], f" and {len(times) - 1} times before" if times[1:] else ""
    return f"unreachable {moment(last['sinceMs'])} to {moment(last['untilMs'])}{often}: {last['sentence']}"


def _last_words(attempt: dict[str, Any]) -> str:
    """The last lines of an attempt's stderr, from the trial runner or else the platform."""
    return printable((attempt["runnerExit"] or {}).get("stderrTail") or attempt["stderrTail"]).rstrip()


Trial = Mapping[str, Any]

_FIRST = (
    Column(header="NO"),
    Column(header="ID"),
    Column(header="STATUS", is_status=True),
    Column(header="RESULT"),
    Column(header="TIME"),
)
_LAST = (Column(header="WHERE", least=12, dispensable=2), Column(header="WHY", is_note=True))
#: Header of parameters that are not a JSON object.
_NAMELESS = "PARAMETERS"
#: Digits of numbers among the parameters: normally, and in a narrow terminal.
_DIGITS, _FEW_DIGITS = 6, 4
#: Smallest widths of words and headers, in characters; numbers are never cut.
_LEAST_WORD, _LEAST_HEADER = 8, 5


def table_text(trials: Sequence[Trial], width: int | None) -> str:
    """The table of trials as text. `width`: of the terminal, in characters; None: no terminal."""
    columns, rows = _of(trials, _DIGITS)
    if width is not None and output.natural_width(columns, rows) > width:
        columns, rows = _of(trials, _FEW_DIGITS, with_place=len({row[-2] for row in rows}) > 1)
    made = output.layout(columns, rows, width)
    hidden = [header for header in made.left_out if header != "WHERE"]
    more = f"\n… and {', '.join(hidden)}: widen the terminal for more columns, or use --json for all" if hidden else ""
    return made.text + more


def result(trial: Trial) -> str:
    """The final result of a trial; while it runs, its last intermediate result.

    A final result that is not a number, such as a list, is shown as it was reported.
    """
    value = trial["finalValue"]
    if value is None and trial["lastValue"] is not None and not TrialStatus(trial["status"]).is_final:
        return f"{number(trial['lastValue'])} so far"
    return number(value) if value is not None else str(trial["finalResult"] or "")


def time_taken(trial: Trial) -> str:
    """The run time of a trial so far; empty before it starts."""
    started, ended = trial["startedMs"], trial["endedMs"]
    if started is None:
        return ""
    return duration((ended if ended is not None else time.time() * 1000) - started)


def why(trial: Trial) -> str:
    if trial["wait"]:
        return str(trial["wait"]["sentence"])
    return reason_in_words(trial["reason"], trial["message"], trial["lastWords"], trial["status"])


def _of(trials: Sequence[Trial], digits: int, *, with_place: bool = True) -> tuple[list[Column], list[Row]]:
    """The columns and rows of the list. Without `with_place` the place column is empty: all trials have the same."""
    shown = [dict(_cells(trial["parameters"], digits)) for trial in trials]
    names = list(dict.fromkeys(name for cells in shown for name in cells))
    columns = [*_FIRST, *(_column(name, [cells.get(name, "") for cells in shown]) for name in names), *_LAST]
    return columns, [_row(trial, cells, names, with_place) for trial, cells in zip(trials, shown, strict=True)]


def _row(trial: Trial, cells: Mapping[str, str], names: Sequence[str], with_place: bool) -> Row:
    place = (trial["place"] or trial["service"] or "") if with_place else ""
    return (
        str(trial["sequenceId"]),
        trial["id"],
        trial["status"],
        result(trial),
        time_taken(trial),
        *(cells.get(name, "") for name in names),
        place,
        why(trial),
    )


def _cells(parameters: object, digits: int, place: str = "") -> Iterator[tuple[str, str]]:
    """(header, text) of each parameter of a trial; for a nested choice, its name, then its own parameters."""
    if not isinstance(parameters, Mapping):
        yield _NAMELESS, compact(parameters)
        return
    for name, value in parameters.items():
        header = flat(place if name == "_name" and place else f"{place}.{name}" if place else str(name))
        if isinstance(value, Mapping) and "_name" in value:
            yield from _cells(value, digits, header)
        else:
            yield header, value if isinstance(value, str) else number(value, digits) or compact(value)


def _column(name: str, cells: Sequence[str]) -> Column:
    widest = max(map(len, cells), default=0)
    least = widest if all(cell == "" or cell[-1].isdigit() for cell in cells) else min(widest, _LEAST_WORD)
    return Column(header=name, least=min(max(least, _LEAST_HEADER), max(widest, len(name))), dispensable=1)
