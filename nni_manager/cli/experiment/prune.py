"""`nnictl experiment prune`: lists and removes old stopped experiments.

With --keep-best, experiments whose results cannot be compared are kept.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import click

from nni_manager.cli import output
from nni_manager.cli.experiment import selection
from nni_manager.cli.experiment.listing import disk_use
from nni_manager.cli.output import Column, echo
from nni_manager.cli.session import Connect, ManagerClient, connected
from nni_manager.client.formats import moment, number
from nni_manager.domain.errors import NniManagerError
from nni_manager.domain.formats import size
from nni_manager.domain.metrics import OptimizeMode

Experiment = dict[str, Any]
#: Time limit for all sizes of a list, in seconds; later ones are omitted.
_SIZES_S = 30.0


def _age(context: click.Context, _: click.Parameter, text: str | None) -> float | None:
    """Seconds."""
    if text is None:
        return None
    from nni_manager.config.reading import scalars

    try:
        return float(scalars.seconds(scalars.duration(text)))
    except ValueError as error:
        raise click.BadParameter(f"{error}; write 30d, 12h or 90m", context) from None


@click.command()
@connected
@click.option(
    "--older-than", metavar="AGE", callback=_age, help="Only those that ended at least this long ago: 30d, 12h."
)
@click.option(
    "--keep-best",
    type=click.IntRange(1),
    metavar="N",
    help="Keep the N with the best results of each name, whatever their age. Those without a name or with unknown"
    " results are kept, too.",
)
@click.option("--archived", is_flag=True, help="Include archived ones.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
def prune(connect: Connect, *, older_than: float | None, keep_best: int | None, archived: bool, yes: bool) -> None:
    """Remove old stopped experiments and their folders. The command lists them first.

    Open experiments are kept, also those that are DONE; `nnictl stop` closes one. Archived ones are kept, too, unless
    --archived is given.
    """
    if older_than is None and keep_best is None:
        raise click.UsageError("give --older-than, --keep-best, or both", click.get_current_context())
    client = connect()
    now_ms, known = time.time() * 1000, client.experiments()
    found = chosen(known, now_ms, older_than, keep_best, archived=archived)
    if keep_best is not None:
        _tell_kept(old(known, now_ms, older_than, archived=archived))
    if not found:
        echo("No stopped experiments match; nothing is removed.")
        return
    sizes = _totals(client, [one["id"] for one in found])
    echo(output.layout(_COLUMNS, map(_row, found, sizes), output.terminal_width()).text)
    what = f"{len(found)} experiment{'s' if len(found) > 1 else ''}, {_total(sizes)}"
    if not yes and not output.confirmed(f"Remove {what}, with everything in their folders?"):
        raise click.ClickException(f"nothing was removed; --yes removes {what} without a question")
    _remove(client.delete, found)


def chosen(
    experiments: Sequence[Experiment],
    now_ms: float,
    older_than_s: float | None,
    keep_best: int | None,
    *,
    archived: bool = False,
) -> list[Experiment]:
    """The stopped experiments to remove, oldest first.

    The best of each name are kept; open and archived experiments compete, too.
    """
    kept = kept_ids(experiments, keep_best) if keep_best is not None else frozenset()
    return [one for one in old(experiments, now_ms, older_than_s, archived=archived) if one["id"] not in kept]


def old(
    experiments: Sequence[Experiment], now_ms: float, older_than_s: float | None, *, archived: bool
) -> list[Experiment]:
    """The stopped experiments of that age, regardless of results; `archived`: including archived ones."""
    shown = (one for one in experiments if archived or not one.get("archived"))
    return [one for one in shown if _is_old(one, now_ms, older_than_s)]


def _is_old(experiment: Experiment, now_ms: float, older_than_s: float | None) -> bool:
    if selection.is_open(experiment):
        return False
    ended_ms = experiment["endedMs"] or experiment["createdMs"]
    return older_than_s is None or now_ms - ended_ms > older_than_s * 1000


def _tell_kept(candidates: Sequence[Experiment]) -> None:
    """Print which experiments are kept for other reasons than their results."""
    unknown = [one["id"] for one in candidates if not is_known(one)]
    unnamed = [one["id"] for one in candidates if is_known(one) and not one["name"]]
    if unknown:
        echo(f"Kept, because their results are unknown: {selection.listing(unknown)}.")
    if unnamed:
        echo(f"Kept, because they have no name: {selection.listing(unnamed)}.")


def _totals(client: ManagerClient, ids: Iterable[str]) -> list[int | None]:
    """Size of each experiment in bytes; None: unknown."""
    until_s, found = time.monotonic() + _SIZES_S, []
    for id_ in ids:
        told = disk_use(client, id_) if time.monotonic() < until_s else None
        found.append(None if told is None else int(told["total"]))
    return found


def _total(sizes: Sequence[int | None]) -> str:
    """The sum, such as ``3.4 MB``, and the number of experiments of unknown size."""
    known = [one for one in sizes if one is not None]
    missing = len(sizes) - len(known)
    return size(sum(known)) + (f" and {missing} of unknown size" if missing else "")


_COLUMNS = [
    Column(header="ID"),
    Column(header="NAME", least=12),
    Column(header="ENDED"),
    Column(header="TRIALS"),
    Column(header="BEST"),
    Column(header="SIZE"),
]


def _row(experiment: Experiment, bytes: int | None) -> tuple[str, ...]:
    best, made = experiment["best"], experiment["trialsMade"]
    return (
        experiment["id"],
        experiment["name"] or "",
        moment(experiment["endedMs"] or experiment["createdMs"])[:16],
        "" if made is None else str(made),
        number(best["value"]) if best else "",
        "" if bytes is None else size(bytes),
    )


def _remove(delete: Callable[[str], None], found: Sequence[Experiment]) -> None:
    """Remove the experiments one by one; continue after one that cannot be removed because it was resumed."""
    kept = []
    for one in found:
        try:
            delete(one["id"])
            echo(f"Experiment {one['id']} is removed.")
        except NniManagerError as error:
            kept.append(f"{one['id']}: {error}")
    if kept:
        raise click.ClickException(f"not removed: {'; '.join(kept)}")


#: Name, direction and objectives: results of one group can be compared.
_Group = tuple[str, str | None, tuple[tuple[str, str], ...]]


def kept_ids(experiments: Sequence[Experiment], count: int) -> frozenset[str]:
    """Ids of the `count` best of each group, and of all without a name or with unknown results.

    In a group, experiments without a single best result come last; ties: the newest first.
    """
    groups: dict[_Group, list[Experiment]] = defaultdict(list)
    kept = set()
    for one in experiments:
        if is_known(one) and one["name"]:
            groups[_group(one)].append(one)
        else:
            kept.add(one["id"])
    return frozenset(kept | {one["id"] for group in groups.values() for one in sorted(group, key=_rank)[:count]})


def is_known(experiment: Experiment) -> bool:
    """Whether the manager knows its results; lists do not open every database."""
    return experiment.get("counts") is not None and experiment.get("trialsMade") is not None


def _group(experiment: Experiment) -> _Group:
    objectives = tuple((experiment.get("objectives") or {}).items())
    return experiment["name"], experiment.get("optimizeMode"), objectives


def _rank(experiment: Experiment) -> tuple[bool, float, int]:
    best = experiment["best"]
    if best is None:
        return True, 0.0, -experiment["createdMs"]
    sign = -1 if experiment["optimizeMode"] == OptimizeMode.MAXIMIZE else 1
    return False, sign * best["value"], -experiment["createdMs"]
