"""`nnictl webui` and `nnictl tensorboard`: addresses of an experiment's pages, for this machine."""

from __future__ import annotations

from typing import Any

import click

from nni_manager.cli import session
from nni_manager.cli.experiment import selection
from nni_manager.cli.output import echo
from nni_manager.cli.session import Connect, ManagerClient, same_daemon, to_read
from nni_manager.client import endpoints
from nni_manager.domain.metrics import OptimizeMode
from nni_manager.domain.trial_status import TrialStatus

Json = dict[str, Any]


class _OpensByDefault(click.Group):
    """A group whose first word may be the argument of its command `open`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        names_command = bool(args) and (args[0] in self.commands or args[0] in ctx.help_option_names)
        return super().parse_args(ctx, args if names_command else ["open", *args])


@click.group(cls=_OpensByDefault)
def webui() -> None:
    """Open an experiment's page: `webui ID` is `webui open ID`."""


@webui.command("open")
@to_read
@selection.id_argument
def open_(connect: Connect, *, id: str | None) -> None:
    """Print the address of an experiment's page. Opens a page first if a finished experiment has none."""
    client, id_ = selection.reach(connect, id)
    experiment = client.experiment(id_)
    found = _pages(client, experiment) or _viewed_pages(client, experiment)
    echo(_required(found, experiment)[0])


@webui.command()
@to_read
@selection.id_argument
def url(connect: Connect, *, id: str | None) -> None:
    """Print the addresses of an experiment's page.

    One is on its own port, the other on the daemon's.
    """
    client, id_ = selection.reach(connect, id)
    experiment = client.experiment(id_)
    echo("\n".join(_required(_pages(client, experiment), experiment)))


def _viewed_pages(client: ManagerClient, experiment: Json) -> list[str]:
    """Open a finished experiment for reading, on its own port; return the addresses of its page."""
    if selection.is_open(experiment):
        return []
    client.view(experiment["id"], endpoint={"port": None, "urlPrefix": ""}, working_directory=None)
    echo(f"`nnictl stop {experiment['id']}{same_daemon()}` closes this page again.", err=True)
    return _pages(client, client.experiment(experiment["id"]))


def _pages(client: ManagerClient, experiment: Json) -> list[str]:
    """The addresses of an experiment's page: its own, then the one on the daemon's service."""
    here = session.current()
    found = (endpoints.own_page(experiment, here), endpoints.service_page(client, experiment["id"], here))
    return [page for page in dict.fromkeys(found) if page]


def _required(pages: list[str], experiment: Json) -> list[str]:
    if pages:
        return pages
    verb = "resume" if selection.is_open(experiment) else "view"
    command = f"nnictl {verb} {experiment['id']} --port 8080{same_daemon()}"
    raise click.ClickException(
        f"experiment {experiment['id']} has no page: the daemon listens on no port. Open one with `{command}`, or start"
        " the daemon with `nni-manager serve`"
    )


#: Default number of trials.
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
    """Start TensorBoard for trials. Its address is printed once it answers."""
    client, id_ = selection.reach(connect, id)
    chosen = [selection.choose_trial(client, id_, one)["id"] for one in trials] or _usual(client, id_)
    board = client.start_tensorboard(id_, chosen, port)
    echo(f"TensorBoard of {len(board['trials'])} trials of experiment {id_}: {board['url']}")
    if not client.is_here:
        echo(f"It runs on the manager's machine: ssh -L {board['port']}:127.0.0.1:{board['port']} forwards it here.")


@tensorboard.command()
@to_read
@selection.id_argument
def stop(connect: Connect, *, id: str | None) -> None:
    """Stop all TensorBoards of an experiment."""
    client, id_ = selection.reach(connect, id)
    count = len(client.tensorboards(id_))
    client.stop_tensorboards(id_)
    echo(f"Stopped {count} TensorBoards of experiment {id_}." if count else "No TensorBoard is running.")


def _usual(client: ManagerClient, id: str) -> list[str]:
    """The best trials, else the newest. Raises ClickException if there are none."""
    order = "final" if client.experiment(id).get("optimizeMode") == OptimizeMode.MINIMIZE else "-final"
    best = client.trials(id, order=order, limit=_MOST, status=TrialStatus.SUCCEEDED)["trials"]
    found = best or client.trials(id, order="-sequence", limit=_MOST)["trials"]
    if not found:
        raise click.ClickException(f"experiment {id} has no trials yet")
    return [one["id"] for one in found]
