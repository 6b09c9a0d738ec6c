"""`nnictl experiment`: what there is, and how it goes."""

from __future__ import annotations

from typing import Any

import click

from nni_manager.cli import progress, selection
from nni_manager.cli.output import compact, duration, echo, echo_json, facts, moment, number, table
from nni_manager.cli.session import Connect, connected

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def experiment() -> None:
    """List, show and delete experiments."""


@experiment.command("list")
@connected
@click.option("--all", "-a", "everything", is_flag=True, help="Closed ones too.")
@json_option
def list_experiments(connect: Connect, *, everything: bool, as_json: bool) -> None:
    """List the open experiments, oldest first."""
    found = [one for one in connect().experiments() if everything or selection.is_open(one)]
    if as_json:
        echo_json(found)
    elif found:
        echo(table(("ID", "NAME", "STATUS", "PLATFORM", "CREATED", "PROBLEM"), map(_row, found)))
    else:
        click.echo("There is no experiment." if everything else "No experiment is open; --all lists closed ones too.")


@experiment.command()
@connected
@selection.id_argument
@json_option
def show(connect: Connect, *, id: str | None, as_json: bool) -> None:
    """Show everything about an experiment."""
    client = connect()
    found = client.experiment(selection.choose(client, id))
    if as_json:
        echo_json(found)
    else:
        echo(facts({**_status(found), **_description(found)}))


@experiment.command()
@connected
@selection.id_argument
@json_option
def status(connect: Connect, *, id: str | None, as_json: bool) -> None:
    """Show how an experiment goes and, if it does not, why."""
    client = connect()
    found = client.experiment(selection.choose(client, id))
    if as_json:
        echo_json({name: found[name] for name in ("id", "status", "hold", "errors")})
    else:
        click.echo(facts(_status(found)))
        if details := (found["hold"] or {}).get("details"):
            click.echo(details.rstrip())


@experiment.command()
@connected
@click.argument("id")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
def delete(connect: Connect, *, id: str, yes: bool) -> None:
    """Remove a stopped experiment and its folder."""
    client = connect()
    id_ = selection.choose(client, id)
    if not yes and not _confirmed(f"Remove experiment {id_} and all that is in {client.experiment(id_)['logPath']}?"):
        raise click.ClickException(f"experiment {id_} was kept; --yes removes it without a question")
    client.delete(id_)
    click.echo(f"Experiment {id_} is removed.")


def _confirmed(question: str) -> bool:
    try:
        return click.confirm(question)
    except click.Abort:  # nobody there to answer
        click.echo()
        return False


def _row(experiment: dict[str, Any]) -> tuple[str, ...]:
    return (
        experiment["id"], experiment["name"] or "", experiment["status"], experiment["platform"],
        moment(experiment["createdMs"]), _problem(experiment),
    )  # fmt: skip


def _status(experiment: dict[str, Any]) -> dict[str, str]:
    return {
        "id": experiment["id"],
        "status": experiment["status"],
        "problem": _problem(experiment),
        "progress": progress.line(progress.read(experiment)),
    }


def _problem(experiment: dict[str, Any]) -> str:
    hold = experiment["hold"]
    held = [f"on hold: {hold['sentence']}"] if hold else []
    return "; ".join([*held, *(text for text in experiment["errors"] if not hold or text != hold["sentence"])])


def _description(experiment: dict[str, Any]) -> dict[str, str]:
    best = experiment["best"]
    return {
        "name": experiment["name"] or "",
        "platform": experiment["platform"],
        "folder": experiment["logPath"],
        "created": moment(experiment["createdMs"]),
        "ended": moment(experiment["endedMs"]),
        "time at work": duration(experiment["execDurationMs"] / 1000),
        "trials made": str(experiment["trialsMade"]),
        "trials": ", ".join(f"{count} {name}" for name, count in experiment["counts"].items()),
        "best": f"{number(best['value']) or 'infinite'} (trial {best['trialId']})" if best else "",
        "best parameters": compact(best["parameters"]) if best else "",
        "config": compact(experiment["config"]),
    }
