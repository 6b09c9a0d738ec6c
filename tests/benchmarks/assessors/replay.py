"""Replays recorded learning curves as trials under an assessor, and measures savings and losses.

`AT_A_TIME` trials run concurrently, each reports one value per turn, and a stopped trial makes room for the next.
"""

from __future__ import annotations

import json
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tests.benchmarks.assessors.record import FILE

AT_A_TIME = 4
Curve = Sequence[float]


class Judge(Protocol):
    """An assessor of one replay; greater values are better."""

    def goes_on(self, trial: str, history: Curve) -> bool: ...

    def end(self, trial: str, history: Curve, *, is_whole: bool) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Shares, 0 to 1, of one replay."""

    #: Share of stopped trials among those with a final result below the median.
    bad_stopped: float
    #: Share of all steps that did not run.
    saved: float
    #: Share of the best tenth of the trials that was not stopped.
    best_kept: float
    #: Best final result of all trials minus the best of those that were not stopped.
    lost: float
    #: Milliseconds of a judgement, on average.
    judgement_ms: float


@dataclass(slots=True)
class _Tally:
    steps: int = 0
    judgements: int = 0
    seconds: float = 0.0
    stopped: set[int] = field(default_factory=set)


def curves() -> list[Curve]:
    """The recorded curves: accuracies after each epoch."""
    return [one["accuracies"] for one in json.loads(FILE.read_text())]


def replay(curves: Sequence[Curve], judge: Judge, seed: int) -> Outcome:
    """The outcome of all curves, in an order drawn from the seed."""
    waiting = list(range(len(curves)))
    random.Random(seed).shuffle(waiting)
    running: dict[int, int] = {}
    tally = _Tally()
    while waiting or running:
        while waiting and len(running) < AT_A_TIME:
            running[waiting.pop()] = 0
        for trial in list(running):
            running[trial] += 1
            if _turn(judge, curves[trial], trial, running[trial], tally):
                del running[trial]
    return _outcome(curves, tally)


def _turn(judge: Judge, curve: Curve, trial: int, step: int, tally: _Tally) -> bool:
    """One value of a trial; whether that was its last one."""
    history, name = curve[:step], f"t{trial}"
    tally.steps += 1
    begun = time.perf_counter()
    goes_on = judge.goes_on(name, history)
    tally.seconds += time.perf_counter() - begun
    tally.judgements += 1
    if step == len(curve):
        judge.end(name, history, is_whole=True)
    elif not goes_on:
        tally.stopped.add(trial)
        judge.end(name, history, is_whole=False)
    return step == len(curve) or not goes_on


def _outcome(curves: Sequence[Curve], tally: _Tally) -> Outcome:
    finals = [curve[-1] for curve in curves]
    middle = statistics.median(finals)
    bad = [trial for trial, final in enumerate(finals) if final < middle]
    best = sorted(range(len(finals)), key=finals.__getitem__)[-(len(finals) // 10) :]
    kept = [final for trial, final in enumerate(finals) if trial not in tally.stopped]
    return Outcome(
        bad_stopped=_share(bad, lambda trial: trial in tally.stopped),
        saved=1 - tally.steps / sum(map(len, curves)),
        best_kept=_share(best, lambda trial: trial not in tally.stopped),
        lost=max(finals) - max(kept),
        judgement_ms=tally.seconds * 1000 / tally.judgements,
    )


def _share(trials: Sequence[int], holds: Callable[[int], bool]) -> float:
    return sum(map(holds, trials)) / len(trials)
