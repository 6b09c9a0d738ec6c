"""A smoke test of `make bench-tuners`: its problems, its measures, and that Auto beats Random in three seeds."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nni_manager.domain.space.search_space import parse
from nni_manager.tuners.random import draw
from tests.benchmarks.tuners import families, measures
from tests.benchmarks.tuners.__main__ import main, make
from tests.benchmarks.tuners.loop import search
from tests.benchmarks.tuners.problem import dimension
from tests.benchmarks.tuners.record import Record
from tests.benchmarks.tuners.rivals import OptunaLoop

pytestmark = [pytest.mark.unit, pytest.mark.timeout(400)]  # searches compute

FAMILIES = {
    **families.NAMED,
    **families.DEVELOPMENT,
    **families.HELD_OUT,
    **families.FINITE,
    **families.FAILING,
}
SEEDS = range(3)


@pytest.mark.parametrize("family", FAMILIES)
def test_no_parameters_are_better_than_the_optimum_of_a_problem(family: str) -> None:
    for seed in SEEDS:
        problem, source = FAMILIES[family](seed), random.Random(seed)
        drawn = [draw(parse(problem.space), seed, number) for number in range(100)]
        drawn = [parameters for parameters in drawn if not problem.fails(parameters)]
        values = [problem.regret(parameters) for parameters in drawn]
        assert min(values) >= -1e-6
        assert len(set(values)) > 3
        assert math.isfinite(problem.reported(drawn[0], source) or 0.0)


def test_no_family_of_the_last_measurement_was_developed_on() -> None:
    assert not set(families.DEVELOPMENT) & set(families.HELD_OUT)


@pytest.mark.parametrize("family", families.FAILING)
def test_third_of_a_failing_family_fails(family: str) -> None:
    for seed in SEEDS:
        problem = FAMILIES[family](seed)
        drawn = [draw(parse(problem.space), seed, number) for number in range(300)]
        failed = [parameters for parameters in drawn if problem.reported(parameters, random.Random(1)) is None]
        assert 70 < len(failed) < 130


def test_search_returns_best_of_trials_that_did_not_fail() -> None:
    problem = replace(FAMILIES["branin"](1), fails=lambda parameters: parameters["x0"] < 0.5)
    seen: list[float] = []

    def noted(parameters: Any) -> float:
        seen.append(FAMILIES["branin"](1).regret(parameters))
        return seen[-1]

    found = search(lambda seed: make("Random", seed), replace(problem, regret=noted), 1, 1, trials=20)
    assert found == min(seen) and len(seen) < 40


@pytest.mark.thorough
@pytest.mark.parametrize("concurrency", [1, 8])
def test_auto_beats_random(concurrency: int) -> None:
    def regrets(name: str) -> dict[str, list[float]]:
        return {
            family: [
                search(lambda one: make(name, one), FAMILIES[family](seed), seed, concurrency, trials=33)
                for seed in SEEDS
            ]
            for family in ("branin", "nested", "integers")
        }

    ours, randoms = regrets("Auto"), regrets("Random")
    assert measures.ratio(ours, randoms) < 0.5 * measures.ratio(randoms, randoms)
    assert measures.chance(ours, randoms) < 0.05


def test_measures_of_equal_and_different_searches() -> None:
    randoms = {"a": [1.0, 2.0, 3.0], "b": [10.0, 20.0, 30.0]}
    assert measures.ratio({"a": [2.0], "b": [20.0]}, randoms) == pytest.approx(1.0)
    assert measures.ratio({"a": [0.0], "b": [20.0]}, randoms) == pytest.approx(math.sqrt(measures.FLOOR))
    assert measures.chance(randoms, randoms) == pytest.approx(0.5)
    assert measures.chance({"a": [0.1] * 9, "b": [1.0] * 9}, randoms) < 0.001
    assert measures.chance({"a": [9.0] * 9, "b": [90.0] * 9}, randoms) > 0.999


def test_record_keeps_searches_and_skips_truncated_line(tmp_path: Path) -> None:
    path, first = tmp_path / "record.jsonl", ("TPE", "named", "branin", 0, 1)
    Record(path).add(first, 0.25)
    with path.open("a") as file:
        file.write('[["TPE", "named", "bra')
    continued = Record(path)
    assert continued.get(first) == 0.25
    continued.add(("TPE", "named", "branin", 1, 1), 0.5)
    assert Record(path).get(("TPE", "named", "branin", 1, 1)) == 0.5
    assert Record(path).get(("TPE", "named", "branin", 2, 1)) is None


def test_rival_without_its_package_is_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", {"torch": None}.get)
    monkeypatch.setattr("sys.argv", ["tuners", "Optuna's GPSampler", "--group", "named"])
    main()
    assert "| Optuna's GPSampler | left out: install torch, with `pip install torch` |" in capsys.readouterr().out


def test_optunas_own_loop_draws_from_whole_distribution() -> None:
    loop, kinds = OptunaLoop(1), {"normal": (0, 1), "lognormal": (0, 1), "qloguniform": (10, 1000, 10)}
    loop.update_search_space({kind: dimension(kind, *values) for kind, values in kinds.items()})
    drawn: Any = [loop.propose(number) for number in range(40)]
    assert min(one["normal"] for one in drawn) < -1 and max(one["lognormal"] for one in drawn) > 2
    assert all(one["qloguniform"] % 10 == 0 for one in drawn)
    assert 3 < sum(one["qloguniform"] < 50 for one in drawn) < 30


@pytest.mark.parametrize("family", [*families.NAMED, *families.FAILING])
def test_optunas_own_loop_searches_the_named_spaces(family: str) -> None:
    assert math.isfinite(search(OptunaLoop, FAMILIES[family](1), 1, 8, trials=14))
