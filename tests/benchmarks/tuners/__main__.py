"""How well and how fast tuners search, as Markdown: `python -m tests.benchmarks.tuners [TUNER…]`.

60 trials of each family, one and eight at a time, for 50 seeds. Random's median of a family is of one at a time.
"""

from __future__ import annotations

import argparse
import functools
import os
from concurrent.futures import ProcessPoolExecutor

# One thread for each process; has to stand before numpy is imported.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

from nni_manager.domain.experiment import AlgorithmSpec
from nni_manager.tuners import registry
from nni_manager.tuners.contract import Tuner
from tests.benchmarks.tuners import ask_time, families, measures
from tests.benchmarks.tuners.loop import search

GROUPS = {"named": families.NAMED, "development": families.DEVELOPMENT, "held-out": families.HELD_OUT}
CONCURRENCIES = (1, 8)
#: Tuners that are too slow for all seeds, and how many they get.
SLOW = {"GP": 20, "SMAC": 20}
#: Tuners that search no spaces of numbers.
_UNFIT = ("Batch", "GridSearch")


def main() -> None:
    known = [name for name in registry.CATALOGUE.names if name not in _UNFIT]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tuners", nargs="*", metavar="TUNER", help=f"of {', '.join(known)}; none: all")
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--group", choices=GROUPS, action="append", help="several may be given; none: all")
    parser.add_argument("--processes", type=int, default=1)
    given = parser.parse_args()
    groups = given.group or list(GROUPS)
    print(
        "| Tuner | " + " | ".join(f"{group}, {count} at a time" for group in groups for count in CONCURRENCIES), end=""
    )
    print(" | ask at 1,000 | ask at 10,000 |\n|---" + "|---" * (len(groups) * len(CONCURRENCIES) + 2) + "|", flush=True)
    with ProcessPoolExecutor(given.processes) as pool:
        for name in given.tuners or known:
            seeds = min(given.seeds, SLOW.get(name, given.seeds))
            cells = [_cell(pool, name, group, count, seeds) for group in groups for count in CONCURRENCIES]
            times = [
                f"{1000 * ask_time.seconds(functools.partial(make, name), count):.1f} ms" for count in ask_time.FINISHED
            ]
            print(f"| {name} | {' | '.join([*cells, *times])} |", flush=True)


def make(name: str, seed: int) -> Tuner:
    """The tuner of that name, to minimise."""
    algorithm = registry.find(name)
    given = {"seed": seed, "optimize_mode": "minimize"}
    takes = (*algorithm.arguments, *algorithm.ignored)
    return registry.create(AlgorithmSpec(name=name, class_args={key: given[key] for key in given if key in takes}))


def regrets(pool: ProcessPoolExecutor, name: str, group: str, concurrency: int, seeds: int) -> dict[str, list[float]]:
    """Of each family of the group, for each seed."""
    cases = [(name, group, family, seed, concurrency) for family in GROUPS[group] for seed in range(seeds)]
    found: dict[str, list[float]] = {}
    for (_, _, family, _, _), regret in zip(cases, pool.map(_regret, cases, chunksize=5), strict=True):
        found.setdefault(family, []).append(regret)
    return found


def _regret(case: tuple[str, str, str, int, int]) -> float:
    name, group, family, seed, concurrency = case
    return search(functools.partial(make, name), GROUPS[group][family](seed), seed, concurrency)


def _cell(pool: ProcessPoolExecutor, name: str, group: str, concurrency: int, seeds: int) -> str:
    random = _of_random(pool, group)
    ours = regrets(pool, name, group, concurrency, seeds)
    return f"{measures.ratio(ours, random):.3f} (p {measures.chance(ours, random):.1g})"


@functools.cache
def _of_random(pool: ProcessPoolExecutor, group: str) -> dict[str, list[float]]:
    return regrets(pool, "Random", group, 1, 50)


if __name__ == "__main__":
    main()
