"""`nnictl experiment report`: one HTML file about an experiment, for colleagues without a manager."""

from __future__ import annotations

from pathlib import Path

import click

from nni_manager.cli.experiment import selection
from nni_manager.cli.experiment.export import written
from nni_manager.cli.session import Connect, to_read

_MEGABYTE = 1e6


@click.command()
@to_read
@selection.id_argument
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="File to write; -: standard output.  [default: ID-report.html]",
)
def report(connect: Connect, *, id: str | None, output: Path | None) -> None:
    """Write one HTML file about an experiment, which opens without a network and can be sent by mail.

    It has the charts, best trials, failures, counts, search space and config (secrets are masked), and what is needed
    to repeat it: commit and uncommitted changes of the code, packages, seed, machine. Look at the changes before you
    send it: what looks like a secret is masked, and not every secret looks like one. Of many trials charts draw a
    sample; a file has about 2.3 MB, and 5 MB at most.
    """
    client = connect()
    id_ = selection.choose(client, id)
    html = client.report(id_)
    path = output or Path(f"{id_}-report.html")
    with written(path, "--output") as file:
        file.write(html.decode())
    click.echo(f"The report of experiment {id_} is in {path} ({len(html) / _MEGABYTE:.1f} MB).", err=str(path) == "-")
