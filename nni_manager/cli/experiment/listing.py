"""`nnictl experiment`: lists, shows and deletes experiments."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import click

from nni_manager.cli import not_here, output
from nni_manager.cli.command_group import LateGroup
from nni_manager.cli.experiment import selection
from nni_manager.cli.output import Column, Row, echo, echo_json, facts, warn
from nni_manager.cli.session import Connect, ManagerClient, connected, nothing_is_open, to_read
from nni_manager.client.formats import best_label, closed_status, compact, cut, moment, number
from nni_manager.domain.errors import NniManagerError, NotFound
from nni_manager.domain.experiment import ExperimentStatus
from nni_manager.domain.formats import duration, size
from nni_manager.domain.trial_status import ended
from nni_manager.programs import pareto_set, progress

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


_LATE = {
    "export": "experiment.export:export",
    "import": "experiment.import_results:import_results",
    "prune": "experiment.prune:prune",
    "report": "experiment.export:report",
}


@click.group(cls=LateGroup, late=_LATE)
def experiment() -> None:
    """List, show, import, export and delete experiments."""


not_here.add_to(experiment, not_here.INSTEAD_OF_EXPERIMENT)


#: The status in lists of an experiment on hold.
_ON_HOLD = "ON HOLD"
#: Maximum length of a problem in the list; `status` shows all of it.
_PROBLEM_LENGTH = 100
_STATUSES = [*(status.value for status in ExperimentStatus), _ON_HOLD.replace(" ", "_")]


@experiment.command("list")
@to_read
@click.option("--all", "-a", "everything", is_flag=True, help="Include closed ones.")
@click.option(
    "--status",
    type=click.Choice(_STATUSES, case_sensitive=False),
    metavar="STATUS",
    help=f"Only those with this status, including closed ones: {', '.join(_STATUSES)}.",
)
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Only the N newest.")
@json_option
def list_experiments(
    connect: Connect, *, everything: bool, status: str | None, limit: int | None, as_json: bool
) -> None:
    """List the open experiments, oldest first."""
    wanted = (status or "").replace("ON_HOLD", _ON_HOLD)
    needs_closed = everything or bool(status)
    known = [] if not needs_closed and nothing_is_open() else _known(connect)
    found = [one for one in known if _is_wanted(one, everything, wanted)]
    found = found[-limit:] if limit else found
    if known:
        client = connect()
        with suppress(NniManagerError):  # the disk does not respond, or the manager has an earlier version
            warn(filter(None, [client.disk()["warning"]]))
    if as_json:
        echo_json(found)
    elif found:
        echo(output.layout(_columns(), map(_row, found), output.terminal_width()).text)
    elif status:
        echo(f"No experiment has the status {wanted}.")
    else:
        echo("No experiments." if everything else "No experiment is open; --all lists closed ones too.")


def _known(connect: Connect) -> list[dict[str, Any]]:
    try:
        return connect().experiments()
    except NotFound:  # no daemon has used the data directory
        return []


def _is_wanted(experiment: dict[str, Any], everything: bool, status: str) -> bool:
    if status:
        return status in (experiment["status"], shown_status(experiment), experiment.get("endedAs"))
    return everything or selection.is_open(experiment)


def _columns() -> list[Column]:
    return [
        Column(header="ID"),
        Column(header="NAME", least=12),
        Column(header="STATUS", is_status=True),
        Column(header="TRIALS"),
        Column(header="BEST"),
        Column(header="PLATFORM", least=8, dispensable=2),
        Column(header="PORT", dispensable=1),
        Column(header=f"CREATED ({time.strftime('%Z')})", dispensable=3),
        Column(header="PROBLEM", is_note=True, note_lines=1),
    ]


@experiment.command()
@to_read
@selection.id_argument
@json_option
def show(connect: Connect, *, id: str | None, as_json: bool) -> None:
    """Show everything about an experiment."""
    client = connect()
    found = client.experiment(selection.choose(client, id))
    record, use = client.provenance(found["id"]), disk_use(client, found["id"])
    if as_json:
        echo_json({**found, "provenance": record, "disk": use})
    else:
        told = {**_status(found), **_description(found), **_origin(record), **_disk_facts(use)}
        echo(facts(told, output.terminal_width()))


_STATUS_FIELDS = ("id", "status", "endedAs", "hold", "errors", "waitsFor", "warnings", "services")


@experiment.command()
@to_read
@selection.id_argument
@json_option
def status(connect: Connect, *, id: str | None, as_json: bool) -> None:
    """Show the state of an experiment and why it does not continue."""
    client = connect()
    found = client.experiment(selection.choose(client, id))
    if as_json:
        echo_json({name: found.get(name) for name in _STATUS_FIELDS})
    else:
        echo(facts(_status(found), output.terminal_width()))
        if details := (found["hold"] or {}).get("details"):
            echo(details.rstrip())


@experiment.command()
@connected
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option("--all", "everything", is_flag=True, help="Every stopped experiment.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
def delete(connect: Connect, *, ids: tuple[str, ...], everything: bool, yes: bool) -> None:
    """Remove stopped experiments and their folders.

    ab*: all whose id begins with ab.
    """
    if everything == bool(ids):
        raise click.UsageError("give the IDs of stopped experiments, or --all", click.get_current_context())
    client = connect()
    chosen = selection.choose_closed(client, ids)
    if not chosen:
        echo("No experiment is stopped.")
        return
    if not yes and not output.confirmed(_question(client, chosen)):
        what = f"experiment {chosen[0]} was" if len(chosen) == 1 else f"{len(chosen)} experiments were"
        raise click.ClickException(
            f"{what} kept; --yes removes {'it' if len(chosen) == 1 else 'them'} without a question"
        )
    for id_ in chosen:
        client.delete(id_)
        echo(f"Experiment {id_} is removed.")


def _question(client: ManagerClient, ids: Sequence[str]) -> str:
    if len(ids) == 1:
        # from the list, which has the folder even of an unreadable experiment
        folders = {one["id"]: one["logPath"] for one in client.experiments()}
        return f"Remove experiment {ids[0]} and everything in {folders.get(ids[0], 'its folder')}?"
    return f"Remove {len(ids)} experiments ({selection.listing(ids)}) and everything in their folders?"


def _row(experiment: dict[str, Any]) -> Row:
    endpoint, best = experiment["endpoint"], experiment.get("best")
    return (
        experiment["id"],
        experiment["name"] or "",
        shown_status(experiment),
        _trials(experiment),
        number(best["value"]) if best else pareto_set.shortly(experiment),
        experiment["platform"],
        str(endpoint["port"]) if endpoint else "",
        moment(experiment["createdMs"])[:16],
        cut(_problem(experiment) or progress.waits_for(experiment), _PROBLEM_LENGTH),
    )


def _trials(experiment: dict[str, Any]) -> str:
    """The number of finished trials, "of" the limit if there is one; empty if the manager does not know."""
    counts, total = experiment.get("counts"), experiment.get("maxTrialNumber")
    if counts is None:
        return ""
    done = ended(counts)
    return f"{done} of {total}" if total is not None else str(done)


def shown_status(experiment: dict[str, Any]) -> str:
    """The displayed status of an experiment.

    ``ON HOLD``: active, but waits for a user; ``DONE (closed)``: stopped after it was done.
    """
    is_held = experiment["hold"] and ExperimentStatus(experiment["status"]).is_active
    return _ON_HOLD if is_held else closed_status(experiment["status"], experiment.get("endedAs"))


def _status(experiment: dict[str, Any]) -> dict[str, str]:
    held = experiment["hold"]["sentence"] if experiment["hold"] else ""
    waits = progress.waits_for(experiment)
    return {
        "id": experiment["id"],
        "status": ": ".join(filter(None, (shown_status(experiment), experiment.get("noMoreTrials")))),
        "problem": _problem(experiment),
        "waits": "" if held and held in waits else waits,
        "warnings": "; ".join(warning["message"] for warning in experiment["warnings"]),
        "progress": progress.line(progress.read(experiment)),
        "failures": progress.failures(experiment),
        **{f"on {service['name']}": _service(service, held) for service in experiment["services"]},
    }


def _service(service: dict[str, Any], held: str) -> str:
    """The state of a training service; empty for a closed experiment. `held`: the sentence of the experiment's hold,
    which is not repeated.

    Such as ``away since 2026-11-20 18:57:03 UTC: no route to host; 3 trials there``.
    """
    if service["status"] is None:
        return ""
    since = f" since {moment(service['sinceMs'])}" if service["sinceMs"] is not None else ""
    sentence = service["sentence"] if service["sentence"] != held else ""
    condition = f"{service['status']}{since}" + (f": {sentence}" if sentence else "")
    there, limit = service["openAttempts"], service["limit"]
    number = f"{there} of {limit}" if limit is not None else f"{there}"
    count = f"{number} {'trial' if number == '1' else 'trials'} there"
    room = f"room for {service['room']} more" if service["room"] is not None else ""
    return "; ".join(filter(None, (condition, count, room)))


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
        "time at work": duration(experiment["execDurationMs"]),
        "trials made": str(experiment["trialsMade"]),
        "trials": ", ".join(f"{count} {name}" for name, count in experiment["counts"].items()),
        best_label(experiment): f"{number(best['value'])} (trial {best['trialId']})" if best else "",
        "best parameters": compact(best["parameters"]) if best else "",
        **pareto_set.facts(experiment),
        "environment": _environment(experiment.get("variables")),
        "config": compact(experiment["config"]),
    }


def _environment(variables: int | None) -> str:
    """The number of its creator's environment variables that an experiment keeps; empty if closed or unknown."""
    return "" if variables is None else f"{variables} variables of its creator; `callerEnvironment` selects them"


def _origin(record: Mapping[str, Any] | None) -> dict[str, str]:
    """Label → text; empty where nothing was recorded."""
    if record is None:
        return {}
    return {"code": _code(record["code"]), "python": _python(record["python"]), "made on": record["host"]}


def _code(code: Mapping[str, Any]) -> str:
    if code["problem"]:
        return f"{code['directory']} ({code['problem']})"
    changes = [f"{len(code['diff'].splitlines())} lines of diff"] if code["diff"] else []
    changes += [f"{len(code['untracked'])} untracked files"] if code["untracked"] else []
    branch = f" of {code['branch']}" if code["branch"] else ""
    return f"{code['directory']}, commit {code['commit'][:12]}{branch}, {' and '.join(changes) or 'nothing changed'}"


def _python(python: Mapping[str, Any]) -> str:
    if python["problem"]:
        return f"{python['executable']} ({python['problem']})"
    return f"{python['executable']}, {python['version']}, {len(python['packages'])} packages"


_PARTS = ("trials", "database", "checkpoints", "code")


def disk_use(client: ManagerClient, id: str) -> dict[str, Any] | None:
    """The disk use of an experiment, as the API reports it; None if unknown."""
    try:
        return client.disk_use(id)
    except NniManagerError:
        return None


def _disk_facts(found: dict[str, Any] | None) -> dict[str, str]:
    if found is None:
        return {
            "on disk": "unknown: its folder is large, its disk does not respond, or the manager has an earlier version"
        }
    named = ", ".join(f"{name} {size(found[name])}" for name in _PARTS if found[name])
    return {"on disk": f"{size(found['total'])} in {found['files']} files" + (f" ({named})" if named else "")}
