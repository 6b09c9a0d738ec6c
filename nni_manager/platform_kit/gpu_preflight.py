"""Preflight findings about the GPUs of a machine, once they were read."""

from __future__ import annotations

from collections.abc import Iterator

from nni_manager.platform_kit import why_not
from nni_manager.platform_kit.contract import PreflightFinding, Severity
from nni_manager.platform_kit.machines.ledger import Demand, MachineLedger

_LEAVE_OUT = "leave trialGpuNumber out"


def findings(machine: MachineLedger, demand: Demand) -> Iterator[PreflightFinding]:
    """Whether trials will ever get what they need there."""
    if demand.count == 0:
        return
    reading = machine.reading
    if reading is None or reading.error:
        sentence = "they were not read" if reading is None else f"they cannot be read: {reading.error}"
        is_absent = reading is not None and reading.is_absent
        yield _finding(
            machine, Severity.WRONG if is_absent else Severity.AWAY, sentence,
            f"install NVIDIA's driver, or {_LEAVE_OUT}" if is_absent else "see what `nvidia-smi` says there",
        )  # fmt: skip
    elif missing := sorted(set(demand.only or ()) - machine.cards.keys()):
        count = len(machine.cards)
        there = "there is no GPU" if not count else f"there are the GPUs {', '.join(map(str, machine.cards))}"
        yield _finding(
            machine, Severity.WRONG, f"gpuIndices names GPU {missing[0]}, and {there}", "name only those that are there"
        )
    elif never := why_not.never_fits(machine, demand):
        yield _finding(machine, Severity.WRONG, never, f"lower what a trial needs, or {_LEAVE_OUT}")
    else:
        free = len(machine.fitting(demand))
        sentence = f"{len(machine.cards)} read by {reading.source}, {free} free for these trials now"
        yield _finding(machine, Severity.FINE, sentence, "")


def _finding(machine: MachineLedger, severity: Severity, sentence: str, fix: str) -> PreflightFinding:
    return PreflightFinding(severity=severity, subject=f"GPUs of {machine.called}", sentence=sentence, fix=fix)
