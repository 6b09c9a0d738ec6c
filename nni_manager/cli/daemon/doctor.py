"""`nni-manager doctor`: checks everything that experiments need, and says how to fix what fails."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nni_manager.cli.caller import data_directory_option
from nni_manager.cli.command_group import FAILED
from nni_manager.client.caller import resolve_data_directory

if TYPE_CHECKING:
    from nni_manager.app.doctor.finding import CheckFinding

_COLOURS = {"OK": "green", "WARN": "yellow", "FAIL": "red"}


@click.command()
@data_directory_option
@click.option(
    "--config", "-c", type=click.Path(path_type=Path), metavar="FILE", help="An experiment file that is to run here."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def doctor(*, data_dir: str | None, config: Path | None, as_json: bool) -> None:
    """Look at what experiments need: disk, ports, clock, keeper, tuners. Changes nothing.

    Exit code 0 when nothing fails, 1 otherwise.
    """
    from nni_manager.app.doctor.examination import examine

    found = _printed(examine(resolve_data_directory(data_dir), os.environ, config=config), quiet=as_json)
    if as_json:
        click.echo(json.dumps([asdict(finding) for finding in found], indent=2, ensure_ascii=False))
    else:
        click.echo(_summary([finding.verdict for finding in found]))
    sys.exit(FAILED if any(finding.verdict == "FAIL" for finding in found) else 0)


def _printed(findings: Iterator[CheckFinding], *, quiet: bool) -> list[CheckFinding]:
    """The findings as a list; each is printed at once unless `quiet`, since some checks take a second."""
    found = []
    for finding in findings:
        found.append(finding)
        if not quiet:
            click.echo(_line(finding))
    return found


def _line(finding: CheckFinding) -> str:
    verdict = click.style(f"{finding.verdict:<4}", fg=_COLOURS[finding.verdict])
    advice = f": {finding.advice}" if finding.advice else ""
    return f"{verdict}  {finding.check:<14}  {' '.join(finding.sentence.split())}{advice}"


def _summary(verdicts: Iterable[str]) -> str:
    counts = {verdict: 0 for verdict in _COLOURS}
    for verdict in verdicts:
        counts[verdict] += 1
    if counts["FAIL"]:
        return f"{counts['FAIL']} of {sum(counts.values())} checks failed."
    warned = f", {counts['WARN']} with a warning" if counts["WARN"] else ""
    return f"All {sum(counts.values())} checks passed{warned}."
