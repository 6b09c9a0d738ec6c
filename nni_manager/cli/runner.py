"""`nni-manager runner`: the program that runs trials inside a cluster's containers."""

from __future__ import annotations

from pathlib import Path

import click

from nni_manager.domain.errors import InvalidInput


@click.group()
def runner() -> None:
    """The program that runs trials inside a cluster's containers."""


@runner.command()
@click.option(
    "--output", type=click.Path(dir_okay=False, path_type=Path), default=Path("runner.pyz"), show_default=True,
    help="File to write.",
)  # fmt: skip
def build(output: Path) -> None:
    """Write the trial runner as one file that needs Python 3.7 or newer and nothing else."""
    from nni_manager.platform_kit.runner_archive import runner_archive

    data = runner_archive()
    try:
        output.write_bytes(data)
        output.chmod(0o755)
    except OSError as error:
        raise InvalidInput(f"--output {output} cannot be written ({error.strerror}); choose another file") from None
    click.echo(f"{output}: {len(data)} bytes")
