"""Figures beside their floors and beside NNI 3.0, as Markdown: `python -m tests.benchmarks [NAME…]`.

All of them take twenty minutes on an idle machine of two cores.
"""

from __future__ import annotations

import argparse
import compileall
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.benchmarks import (
    connections,
    history,
    kubernetes,
    metrics,
    programs,
    reads,
    sdk,
    start_and_stop,
    thousand,
    throughput,
)
from tests.benchmarks.pages import crowd, looked_at, watched
from tests.benchmarks.table import Table

ROOT = Path(__file__).parents[2]
FIGURES: dict[str, Callable[[Path, Table], None]] = {
    "serve": start_and_stop.first_answer,
    "start": start_and_stop.measure,
    "connections": connections.measure,
    "throughput": throughput.measure,
    "optuna": throughput.against_optuna,
    "history": history.measure,
    "sdk": sdk.measure,
    "programs": programs.measure,
    "reporters": programs.many_reporters,
    "thousand": thousand.measure,
    "kubernetes": kubernetes.measure,
    "metrics": metrics.measure,
    "status": reads.check_status,
    "reads": reads.measure_all,
    "page": looked_at.measure,
    "watched": watched.measure,
    "readers": crowd.measure,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(FIGURES)}; none: all")
    names = parser.parse_args().names or list(FIGURES)
    if unknown := [name for name in names if name not in FIGURES]:
        parser.error(f"no such figures: {', '.join(unknown)}")
    for package in ("nni_manager", "trial_runner"):  # as pip compiled NNI
        compileall.compile_dir(ROOT / package, quiet=1)
    # new folders for each, removed at the very end: ext4 is slow for minutes where thousands of files were removed
    folder = Path(tempfile.mkdtemp(prefix="nni-manager-bench-"))
    table = Table()
    try:
        for name in names:
            FIGURES[name](folder / name, table)
        table.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
