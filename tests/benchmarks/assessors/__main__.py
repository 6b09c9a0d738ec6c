"""Assessors on recorded learning curves, as Markdown: `python -m tests.benchmarks.assessors [--orders N] [--slow]`.

NNI's Curvefitting takes half a second per judgement: with `--slow`, it and ours get one order of every fifth curve.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields
from pathlib import Path

from nni_manager.assessors.registry import CATALOGUE
from tests import nni3
from tests.benchmarks.assessors import judges
from tests.benchmarks.assessors.record import EPOCHS
from tests.benchmarks.assessors.replay import Curve, Judge, Outcome, curves, replay

Make = Callable[[], AbstractContextManager[Judge]]

_HEADERS = ("Assessor", "bad trials stopped", "time saved", "best tenth kept", "best result lost", "ms a judgement")
#: Arguments of our assessors for these curves.
_OURS = {"Medianstop": {}, "Curvefitting": {"epoch_num": EPOCHS}, "ASHA": {"max_steps": EPOCHS}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--orders", type=int, default=20, help="orders of the curves; default: 20")
    parser.add_argument("--slow", action="store_true", help="NNI's Curvefitting, too, which takes a quarter of an hour")
    given = parser.parse_args()
    known = curves()
    print(f"| {' | '.join(_HEADERS)} |\n|{'---|' * len(_HEADERS)}", flush=True)
    for name, make in ours():
        print(row(name, make, known, given.orders), flush=True)
    try:
        python = nni3.interpreter()
    except RuntimeError as error:
        print(f"\nskipped, as NNI 3.0 cannot be installed here: Medianstop and Curvefitting of NNI ({error})")
        return
    print(row("NNI's Medianstop", of_nni(python, "Medianstop"), known, given.orders), flush=True)
    if given.slow:
        print(row("Curvefitting, a fifth", dict(ours())["Curvefitting"], known[::5], 1), flush=True)
        make = of_nni(python, "Curvefitting", epoch_num=EPOCHS)
        print(row("NNI's Curvefitting, a fifth", make, known[::5], 1), flush=True)


def ours() -> Iterator[tuple[str, Make]]:
    """The assessors that need only installed packages: ours, and Optuna's pruners."""
    for name, arguments in _OURS.items():
        if name in CATALOGUE.names:
            yield name, lambda name=name, arguments=arguments: nullcontext(judges.Ours(name, **arguments))  # type: ignore[misc]
    for name in ("MedianPruner", "SuccessiveHalvingPruner"):
        yield f"Optuna's {name}", lambda name=name: nullcontext(judges.OptunaPruner(name))  # type: ignore[misc]


def of_nni(python: Path, name: str, **arguments: object) -> Make:
    return lambda: judges.upstream(python, f"{name.lower()}_assessor", f"{name}Assessor", **arguments)


def row(name: str, make: Make, known: list[Curve], orders: int) -> str:
    """One line of the table: means over the orders."""
    found = outcomes(make, known, orders)
    means = {one.name: statistics.mean(getattr(outcome, one.name) for outcome in found) for one in fields(Outcome)}
    shares = " | ".join(f"{means[share]:.0%}" for share in ("bad_stopped", "saved", "best_kept"))
    milliseconds = float(f"{means['judgement_ms']:.2g}")
    return f"| {name} | {shares} | {means['lost']:.4f} | {milliseconds:g} |"


def outcomes(make: Make, known: list[Curve], orders: int) -> list[Outcome]:
    found = []
    for seed in range(orders):
        with make() as judge:
            found.append(replay(known, judge, seed))
    return found


if __name__ == "__main__":
    main()
