"""Families over other spaces: whole numbers, plateaus, categories, conditions, logarithmic scales, and mixtures."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.tuners.problem import Problem, box, dimension, rotation, shift, vector

_TABLE = Path(__file__).with_name("digits.json")


def integers(seed: int) -> Problem:
    """Five whole numbers, rotated: steps of a bowl."""
    source = np.random.default_rng((seed, 5))
    best, turn, scales = source.integers(10, 90, 5), rotation(seed, 5), np.array([1.0, 2.0, 5.0, 10.0, 20.0])
    return Problem(
        space=box(5, 0, 100, "randint"),
        regret=lambda parameters: float(scales @ (turn @ (vector(parameters, 5) - best)) ** 2) / 100,
    )


def quantised(seed: int) -> Problem:
    """Steps and whole numbers of different sizes; one of them does not matter."""
    source = np.random.default_rng((seed, 6))
    units, layers = 16 * int(source.integers(3, 30)), int(source.integers(2, 7))
    rate = 0.05 * int(source.integers(1, 10))
    space = {
        "units": dimension("quniform", 16, 512, 16),
        "layers": dimension("randint", 1, 9),
        "rate": dimension("quniform", 0, 0.5, 0.05),
        "patience": dimension("randint", 1, 20),
        "steps": dimension("qloguniform", 10, 1000, 10),
    }

    def regret(parameters: Any) -> float:
        width = math.log2(parameters["units"] / units)
        depth = (parameters["layers"] - layers) * (0.4 + 0.1 * width)
        drop = 4 * (parameters["rate"] - rate) + 0.3 * width
        return width**2 + depth**2 + drop**2 + abs(math.log(parameters["steps"] / 200)) * 0.3

    return Problem(space=space, regret=regret)


def plateau(seed: int) -> Problem:
    """Rounded up to whole numbers: flat except for steps, in four dimensions."""
    offset = shift(seed, 4, 3.0)
    return Problem(
        space=box(4, -5.0, 5.0),
        regret=lambda parameters: float(np.sum(np.floor(2 * np.abs(vector(parameters, 4) - offset)))),
    )


def steps(seed: int) -> Problem:
    """De Jong's step function in six dimensions, rounded in the large, with slopes that differ."""
    offset = shift(seed, 6, 2.5)
    weights = np.random.default_rng((seed, 7)).uniform(0.5, 3.0, 6)
    return Problem(
        space=box(6, -5.12, 5.12),
        regret=lambda parameters: float(weights @ np.floor(np.abs(vector(parameters, 6) - offset) + 0.5)),
    )


def categories(seed: int) -> Problem:
    """Six choices of five, each with a cost; some pairs interact."""
    source = np.random.default_rng((seed, 8))
    costs = source.exponential(1.0, (6, 5))
    pairs = source.normal(0.0, 0.5, (5, 5, 5))
    options = ["a", "b", "c", "d", "e"]
    space = {f"x{index}": dimension("choice", *options) for index in range(6)}

    def value(picks: tuple[int, ...]) -> float:
        single = sum(costs[index, pick] for index, pick in enumerate(picks))
        return float(single + sum(pairs[i, picks[i], picks[i + 1]] for i in range(5)))

    least = _least_chain(costs, pairs)

    def regret(parameters: Any) -> float:
        return max(value(tuple(options.index(parameters[f"x{index}"]) for index in range(6))) - least, 0.0)

    return Problem(space=space, regret=regret)


def _least_chain(costs: Any, pairs: Any) -> float:
    """The smallest value of `categories`, by dynamic programming along the chain of pairs."""
    so_far = costs[0]
    for index in range(5):
        so_far = np.min(so_far[:, None] + pairs[index], axis=0) + costs[index + 1]
    return float(np.min(so_far))


def logarithmic(seed: int) -> Problem:
    """Learning rate, decay and momentum on logarithmic scales, one of them a valley with another."""
    source = np.random.default_rng((seed, 9))
    rate, decay, clip = source.uniform(-4, -1), source.uniform(-6, -2), source.uniform(-0.5, 0.5)
    space = {
        "rate": dimension("loguniform", 1e-5, 1),
        "decay": dimension("loguniform", 1e-8, 1e-1),
        "clip": dimension("lognormal", 0, 1),
        "momentum": dimension("uniform", 0.5, 0.999),
    }

    def regret(parameters: Any) -> float:
        slope = math.log10(parameters["rate"]) - rate
        brake = math.log10(parameters["decay"]) - decay
        speed = math.log10(1 - parameters["momentum"]) + 1
        return (
            (slope + 0.5 * speed) ** 2
            + 0.1 * brake**2
            + 0.2 * speed**2
            + 0.2 * (math.log(parameters["clip"]) - clip) ** 2
        )

    return Problem(space=space, regret=regret)


def training(seed: int) -> Problem:
    """The validation loss of a synthetic network: mixed types, a noise floor, and a cliff where training diverges."""
    source = np.random.default_rng((seed, 10))
    rate, width = source.uniform(-3.5, -2), int(source.choice([64, 128, 256]))
    best = source.permutation(["relu", "tanh", "gelu"])
    space = {
        "rate": dimension("loguniform", 1e-5, 1e-1),
        "width": dimension("choice", 16, 32, 64, 128, 256, 512),
        "activation": dimension("choice", "relu", "tanh", "gelu"),
        "dropout": dimension("uniform", 0, 0.8),
        "layers": dimension("randint", 1, 7),
        "batch": dimension("choice", 16, 32, 64, 128),
    }

    def regret(parameters: Any) -> float:
        slope = math.log10(parameters["rate"]) - rate - 0.3 * math.log2(parameters["batch"] / 32)
        size = math.log2(parameters["width"] / width) + 0.5 * (parameters["layers"] - 3)
        kind = 0.15 * list(best).index(parameters["activation"])
        loss = 0.3 * slope**2 + 0.08 * size**2 + kind + 0.5 * (parameters["dropout"] - 0.3) ** 2
        return float(loss + (5.0 if slope > 1.2 else 0.0))

    return Problem(space=space, regret=regret, noise=0.02)


def nested(seed: int) -> Problem:
    """Three kinds of models with separate dimensions, and one shared dimension."""
    source = np.random.default_rng((seed, 11))
    rate, momentum, depth, cost = (
        source.uniform(-4, -1),
        source.uniform(0.2, 0.9),
        int(source.integers(3, 10)),
        source.uniform(-2, 2),
    )
    floors = source.permutation([0.0, 0.3, 0.6])
    space = {
        "model": dimension(
            "choice",
            {"_name": "net", "rate": dimension("loguniform", 1e-5, 1), "momentum": dimension("uniform", 0, 1)},
            {"_name": "trees", "depth": dimension("randint", 1, 20), "share": dimension("uniform", 0.1, 1)},
            {"_name": "svm", "cost": dimension("loguniform", 1e-3, 1e3), "gamma": dimension("loguniform", 1e-4, 10)},
        ),
        "scale": dimension("uniform", 0, 4),
    }

    def regret(parameters: Any) -> float:
        model = parameters["model"]
        if model["_name"] == "net":
            own = floors[0] + 0.3 * (math.log10(model["rate"]) - rate) ** 2 + (model["momentum"] - momentum) ** 2
        elif model["_name"] == "trees":
            own = floors[1] + 0.02 * (model["depth"] - depth) ** 2 + (model["share"] - 0.7) ** 2
        else:
            bend = math.log10(model["gamma"]) + 0.5 * math.log10(model["cost"]) + 1
            own = floors[2] + 0.2 * (math.log10(model["cost"]) - cost) ** 2 + 0.3 * bend**2
        return float(own + 0.1 * (parameters["scale"] - 1.5 - floors[0]) ** 2)

    return Problem(space=space, regret=regret)


def conditional(seed: int) -> Problem:
    """A nested choice, and whole numbers that matter in only one branch."""
    source = np.random.default_rng((seed, 12))
    x, y, count = source.uniform(0.1, 0.9), source.uniform(-3, 0), int(source.integers(5, 45))
    space = {
        "outer": dimension(
            "choice",
            {"_name": "plain", "x": dimension("uniform", 0, 1), "z": dimension("uniform", 0, 1)},
            {
                "_name": "deep",
                "count": dimension("randint", 1, 50),
                "inner": dimension(
                    "choice",
                    {"_name": "a", "x": dimension("uniform", 0, 1), "y": dimension("loguniform", 1e-4, 1)},
                    {"_name": "b", "w": dimension("normal", 0, 1)},
                ),
            },
        ),
        "base": dimension("quniform", 0, 10, 0.5),
    }
    base = 0.5 * int(source.integers(2, 19))

    def regret(parameters: Any) -> float:
        outer, value = parameters["outer"], 0.05 * abs(parameters["base"] - base)
        if outer["_name"] == "plain":
            return float(value + 0.4 + (outer["x"] - x) ** 2 + (outer["z"] - x) ** 2)
        inner = outer["inner"]
        value += 0.3 * abs(math.log(outer["count"] / count))
        if inner["_name"] == "b":
            return float(value + 0.2 + 0.2 * (inner["w"] - 1) ** 2)
        return float(value + 2 * (inner["x"] - x) ** 2 + 0.2 * (math.log10(inner["y"]) - y) ** 2)

    return Problem(space=space, regret=regret)


def digits(seed: int) -> Problem:
    """The digits example with recorded results: returns that of the nearest recorded point."""
    table = json.loads(_TABLE.read_text())
    grid = table["grid"]
    accuracy = np.array(table["accuracy"]).reshape([len(values) for values in grid.values()])
    space = {
        "learning_rate": dimension("loguniform", 0.0001, 0.1),
        "hidden_size": dimension("quniform", 8, 64, 8),
        "alpha": dimension("loguniform", 0.000001, 0.1),
        "activation": dimension("choice", "relu", "tanh", "logistic"),
        "batch_size": dimension("choice", 16, 32, 64, 128),
    }

    def regret(parameters: Any) -> float:
        return float(
            accuracy.max() - accuracy[tuple(_nearest(values, parameters[name]) for name, values in grid.items())]
        )

    return Problem(space=space, regret=regret)


def _nearest(values: list[Any], value: Any) -> int:
    if isinstance(value, str):
        return values.index(value)
    return int(np.argmin([abs(math.log(known / value)) for known in values]))
