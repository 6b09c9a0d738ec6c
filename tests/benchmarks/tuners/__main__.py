"""How well and how fast tuners search, as Markdown: `python -m tests.benchmarks.tuners [TUNER…]`.

60 trials of each family, sequential and eight at a time, for 50 seeds. Random's median of a family is sequential.
Rivals whose packages are not installed are left out, with a message.
With `--record FILE` each search is stored, and stored ones are not repeated.
"""

from __future__ import annotations

import argparse
import functools
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

# One thread for each process; has to stand before numpy is imported.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

from nni_manager.domain.algorithm import AlgorithmSpec
from nni_manager.tuners import registry
from nni_manager.tuners.contract import Tuner
from tests.benchmarks.tuners import ask_time, families, measures
from tests.benchmarks.tuners.loop import search
from tests.benchmarks.tuners.record import Case, Record
from tests.benchmarks.tuners.rivals import RIVALS, missing

GROUPS = {
    "named": families.NAMED,
    "development": families.DEVELOPMENT,
    "held-out": families.HELD_OUT,
    "noisy": families.NOISY,
    "finite": families.FINITE,
    "failing": families.FAILING,
}
CONCURRENCIES = (1, 8)
#: Tuners that are too slow for all seeds → their number of seeds.
SLOW = {"GPTuner": 20, "SMAC": 20, "Optuna's GPSampler": 10}
#: Tuners without numeric spaces.
_UNFIT = ("Batch", "GridSearch")


def main() -> None:
    known = [*(name for name in registry.CATALOGUE.names if name not in _UNFIT), *RIVALS]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tuners", nargs="*", metavar="TUNER", help=f"of {', '.join(known)}; none: all")
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--group", choices=GROUPS, action="append", help="several may be given; none: all")
    parser.add_argument("--at-once", type=int, action="append", help="several may be given; none: 1 and 8")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--record", type=Path, help="a file of searches, to go on with")
    given = parser.parse_args()
    groups, at_once = given.group or list(GROUPS), given.at_once or CONCURRENCIES
    _print_head(groups, at_once)
    record = Record(given.record)
    with ProcessPoolExecutor(given.processes) as pool:
        for name in given.tuners or known:
            if needed := missing(name):
                print(f"| {name} | left out: install {needed} |", flush=True)
                continue
            seeds = min(given.seeds, SLOW.get(name, given.seeds))
            cells = [_cell(pool, record, name, group, count, seeds) for group in groups for count in at_once]
            print(f"| {name} | {' | '.join([*cells, *_ask_times(name)])} |", flush=True)


def _print_head(groups: list[str], at_once: Sequence[int]) -> None:
    cells = [f"{group}, {count} at a time" for group in groups for count in at_once]
    cells = ["Tuner", *cells, *(f"ask at {count:,}: median, maximum" for count in ask_time.FINISHED)]
    print(f"| {' | '.join(cells)} |\n{'|---' * len(cells)}|", flush=True)


def _ask_times(name: str) -> list[str]:
    if name in RIVALS:
        return ["–" for _ in ask_time.FINISHED]
    times = [ask_time.seconds(functools.partial(make, name), count) for count in ask_time.FINISHED]
    return [f"{1000 * median:.1f} ms, {1000 * most:.1f} ms" for median, most in times]


def make(name: str, seed: int) -> Tuner:
    """The tuner of that name, to minimise."""
    if name in RIVALS:
        return RIVALS[name](seed)
    algorithm = registry.CATALOGUE.find(name)
    given = {"seed": seed, "optimize_mode": "minimize"}
    takes = (*algorithm.arguments, *algorithm.ignored)
    return registry.create(AlgorithmSpec(name=name, class_args={key: given[key] for key in given if key in takes}))


def regrets(
    pool: ProcessPoolExecutor, record: Record, name: str, group: str, concurrency: int, seeds: int
) -> dict[str, list[float]]:
    """Searches of each family of the group, for each seed."""
    cases: list[Case] = [(name, group, family, seed, concurrency) for family in GROUPS[group] for seed in range(seeds)]
    missing = [case for case in cases if record.get(case) is None]
    for case, regret in zip(missing, pool.map(_regret, missing, chunksize=5), strict=True):
        record.add(case, regret)
    found: dict[str, list[float]] = {}
    for case in cases:
        regret_of_case = record.get(case)
        assert regret_of_case is not None
        found.setdefault(case[2], []).append(regret_of_case)
    return found


def _regret(case: Case) -> float:
    name, group, family, seed, concurrency = case
    return search(functools.partial(make, name), GROUPS[group][family](seed), seed, concurrency)


def _cell(pool: ProcessPoolExecutor, record: Record, name: str, group: str, concurrency: int, seeds: int) -> str:
    random = regrets(pool, record, "Random", group, 1, 50)
    ours = regrets(pool, record, name, group, concurrency, seeds)
    return f"{measures.ratio(ours, random):.3f} (p {measures.chance(ours, random):.1g})"


if __name__ == "__main__":
    main()
