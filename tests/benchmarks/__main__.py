"""Figures next to their floors and NNI 3.0, as Markdown: `python -m tests.benchmarks [NAME…]`.

All figures take 35 minutes on an idle machine with two cores. Figures that fail or need a missing program are
skipped by name; the exit code is then 1.
"""

from __future__ import annotations

import argparse
import compileall
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from tests import nni3
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
    width,
)
from tests.benchmarks.pages import crowd, looked_at, watched
from tests.benchmarks.table import Table
from tests.browser.conftest import CHROMIUM

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
    "width": width.measure,
    "kubernetes": kubernetes.measure,
    "metrics": metrics.measure,
    "status": reads.check_status,
    "reads": reads.measure_all,
    "page": looked_at.measure,
    "watched": watched.measure,
    "readers": crowd.measure,
}


#: Figures that need Chromium, and figures that need NNI.
_IN_CHROMIUM = frozenset(("page", "watched"))
_BESIDE_NNI = frozenset(
    ("start", "throughput", "sdk", "programs", "reporters", "thousand", "metrics", "status", "reads")
)


def left_out(names: Sequence[str]) -> dict[str, str]:
    """Name of each figure that cannot be measured here → the missing program, and how to install it."""
    missing: dict[str, str] = {}
    if _IN_CHROMIUM & set(names) and not Path(CHROMIUM).exists():
        missing |= dict.fromkeys(_IN_CHROMIUM, "Chromium is not installed; run `make chromium`")
    if _BESIDE_NNI & set(names):
        try:
            nni3.interpreter()
        except RuntimeError as error:
            missing |= dict.fromkeys(_BESIDE_NNI, f"NNI cannot be installed; see `make nni3` ({str(error)[-200:]})")
    return {name: why for name, why in missing.items() if name in names}


def measure(names: Sequence[str], folder: Path, table: Table) -> dict[str, str]:
    """Measures each figure in a new folder below `folder`; returns those that failed → the error."""
    failed = {}
    for name in names:
        try:
            FIGURES[name](folder / name, table)
        except Exception as error:
            traceback.print_exc()
            failed[name] = f"{type(error).__name__}: {error}"
    return failed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(FIGURES)}; none: all")
    names = parser.parse_args().names or list(FIGURES)
    if unknown := [name for name in names if name not in FIGURES]:
        parser.error(f"no such figures: {', '.join(unknown)}")
    for package in ("nni_manager", "trial_runner"):  # as pip compiled NNI
        compileall.compile_dir(ROOT / package, quiet=1)
    # new folders for each, removed at the end: ext4 is slow for minutes after thousands of removals
    folder = Path(tempfile.mkdtemp(prefix="nni-manager-bench-"))
    table, missing = Table(), left_out(names)
    try:
        failed = measure([name for name in names if name not in missing], folder, table)
        table.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for name, why in {**missing, **failed}.items():
        print(f"left out: {name}: {why}")
    sys.exit(1 if missing or failed else 0)


if __name__ == "__main__":
    main()
