"""A thousand lite trials: memory, results lost, CPU."""

from __future__ import annotations

from pathlib import Path

from tests.benchmarks import lite, subject, upstream
from tests.benchmarks.table import Table, at_most

TRIALS = 1000
#: Number of trials that NNI finishes in a minute.
_NNI_AT_ONCE = 50


def measure(folder: Path, table: Table) -> None:
    nni_missing, nni_memory = _nni(folder / "nni")
    run = subject.lite_trials(folder / "ours", TRIALS, 8)
    shares = ", ".join(f"{name} {size:.0f}" for name, size in run.memory_mib.items())
    table.row("results missing of 1,000 lite trials", run.missing, at_most(0), nni=nni_missing)
    table.row(f"memory MiB after 1,000 trials ({shares})", sum(run.memory_mib.values()), at_most(120), nni=nni_memory)
    cpu = ", ".join(f"{name} {ms:.2f}" for name, ms in run.cpu_ms.items())
    table.row(f"CPU ms a trial of 1,000, 8 at a time ({cpu})", sum(run.cpu_ms.values()), at_most(4))


def _nni(folder: Path) -> tuple[int, float]:
    """(trials without a result, MiB of manager and tuner)."""
    with upstream.Nni(folder) as nni:
        nni.create(subject.config(trials=TRIALS, at_once=_NNI_AT_ONCE, command=lite.NNI_COMMAND))
        nni.wait("DONE")
        missing = sum("finalMetricData" not in job for job in nni.get("trial-jobs"))
        return missing, sum(process.memory_info().rss / 2**20 for process in nni.processes().values())
