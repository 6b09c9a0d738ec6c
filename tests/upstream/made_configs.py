"""Configs made by changing a few fields of NNI's examples: the same ones from the same seed."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

EXAMPLES = Path(__file__).parents[1] / "config" / "nni_examples"
#: Values that some field takes and others do not.
POOL: list[Any] = [
    0,
    1,
    2,
    -1,
    100_000,
    True,
    False,
    1.5,
    "",
    "text",
    "1",
    "0,1",
    "1h",
    "90s",
    "1.5h",
    "0s",
    "8gb",
    "512mb",
    "8Gi",
    [],
    [0, 1],
    [0, 0],
    {},
    None,
    "nfs",
    "azureStorage",
    "info",
    "v1",
    "worker",
    "no/such/path",
    "code",
]
Place = tuple[str | int, ...]


@dataclass(frozen=True)
class Change:
    """One field of a config, changed."""

    place: Place
    #: ``drop``, ``add`` or ``set``.
    what: str
    value: Any = None

    @property
    def field(self) -> str:
        return str([step for step in self.place if isinstance(step, str)][-1])


@dataclass(frozen=True)
class Made:
    base: str
    changes: tuple[Change, ...]
    config: dict[str, Any]


def made(names: list[str], count: int, seed: int) -> Iterator[Made]:
    """`names`: of examples that both accept. Every tenth one is not changed at all."""
    chance = random.Random(seed)
    for number in range(count):
        name = names[number % len(names)]
        config = _known_to_both(copy.deepcopy(_example(name)))
        changes = tuple(_change(config, chance) for _ in range(number % 10 and chance.choice((1, 1, 1, 2))))
        yield Made(name, changes, config)


@cache
def _example(name: str) -> dict[str, Any]:
    config: dict[str, Any] = yaml.safe_load((EXAMPLES / name).read_text())
    return config


def _known_to_both(config: dict[str, Any]) -> dict[str, Any]:
    """NNI's Python classes want a field of roles that nothing comes of, and do not know another."""
    service = config.get("trainingService", {})
    for role in (service[name] for name in ("worker", "ps", "master") if name in service):
        role.pop("privateRegistryAuthPath", None)
        role["codeDirectory"] = "code"
    return config


def _change(config: dict[str, Any], chance: random.Random) -> Change:
    place = chance.choice(list(_places(config)))
    what = chance.choice(("drop", "set", "set", "set", "set", "add"))
    parent: Any = config
    for step in place[:-1]:
        parent = parent[step]
    if what == "drop" or (what == "add" and isinstance(parent, list)):
        del parent[place[-1]]
        return Change(place, "drop")
    alike = [one for one in POOL if type(one) is type(parent[place[-1]])]
    value = copy.deepcopy(chance.choice(chance.choice((POOL, alike or POOL))))
    if what == "add":
        parent["noSuchField"] = value
        return Change((*place[:-1], "noSuchField"), "add", value)
    parent[place[-1]] = value
    return Change(place, "set", value)


def _places(node: Any, above: Place = ()) -> Iterator[Place]:
    """Of everything but arguments and jobs, which neither loader looks into."""
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        if key not in ("classArgs", "openpaiConfig", "searchSpace", "search_space"):
            yield (*above, key)
            yield from _places(value, (*above, key))
