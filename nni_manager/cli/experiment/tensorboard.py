"""`nnictl tensorboard`: TensorBoard for trials of an experiment, on the manager's machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from nni_manager.cli.experiment import selection
from nni_manager.cli.session import Connect, to_read
from nni_manager.domain.metrics import OptimizeMode
from nni_manager.domain.trial import TrialStatus

if TYPE_CHECKING:
    from nni_manager.client.manager_client import ManagerClient

#: Trials that are shown where none is named.
_MOST = 10


@click.group()
def tensorboard() -> None:
    """Start and stop TensorBoard for trials.

    It shows what trials write into $NNI_OUTPUT_DIR/tensorboard, and needs `pip install tensorboard`.
    """


@tensorboard.command()
@to_read
@selection.id_argument
@click.option(
    "--trial_id",
    "--trial-id",
    "-T",
    "trials",
    multiple=True,
    metavar="TRIAL",
    help=f"A trial, by id or number; may be repeated.  [default: the {_MOST} best, or newest]",
)
@click.option("--port", type=click.IntRange(1024, 65535), help="Its port.  [default: the first free one from 6006 on]")
def start(connect: Connect, *, id: str | None, trials: tuple[str, ...], port: int | None) -> None:
    """Start TensorBoard for trials; its address is printed once it answers."""
    client = connect()
    id_ = selection.choose(client, id)
    chosen = [selection.choose_trial(client, id_, one)["id"] for one in trials] or _usual(client, id_)
    board = client.start_tensorboard(id_, chosen, port)
    click.echo(f"TensorBoard of {len(board['trials'])} trials of experiment {id_}: {board['url']}")
    if not client.is_here:
        click.echo(
            f"That is on the manager's machine: ssh -L {board['port']}:127.0.0.1:{board['port']} brings it here."
        )


@tensorboard.command()
@to_read
@selection.id_argument
def stop(connect: Connect, *, id: str | None) -> None:
    """Stop all TensorBoards of an experiment."""
    client = connect()
    id_ = selection.choose(client, id)
    count = len(client.tensorboards(id_))
    client.stop_tensorboards(id_)
    click.echo(f"{count} TensorBoards of experiment {id_} are stopped." if count else "No TensorBoard runs.")


def _usual(client: ManagerClient, id: str) -> list[str]:
    """The best trials, else the newest. Raises ClickException where there are none."""
    order = "final" if client.experiment(id).get("optimizeMode") == OptimizeMode.MINIMIZE else "-final"
    best = client.trials(id, order=order, limit=_MOST, status=TrialStatus.SUCCEEDED)["trials"]
    found = best or client.trials(id, order="-sequence", limit=_MOST)["trials"]
    if not found:
        raise click.ClickException(f"experiment {id} has no trial yet")
    return [one["id"] for one in found]
