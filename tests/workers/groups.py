"""What is handed out together, and in which order.

Tests that share a fixture of their module run in one process: what is started once for them all is started once. So do
those of a mark: ``pytest.mark.group("ssh")``.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Sequence

import pytest

#: Seconds that a test without a limit of its own may take: in `pyproject.toml`; and one that starts no process.
_LIMIT_S, _UNIT_S = 120.0, 1.0


def groups_of(items: Sequence[pytest.Item]) -> deque[list[int]]:
    """Numbers of the tests, in the order of `items`; first the group whose tests may take longest altogether.

    So no process is left with it when the others are done.
    """
    groups: dict[str, list[int]] = defaultdict(list)
    limits = Counter[str]()
    for number, item in enumerate(items):
        name = _group(item) or item.nodeid
        groups[name].append(number)
        limits[name] += int(_limit_s(item))
    return deque(groups[name] for name in sorted(groups, key=lambda name: -limits[name]))


def _group(item: pytest.Item) -> str:
    """Of its mark, or the module where a fixture of it is shared; empty: none."""
    mark = item.get_closest_marker("group")
    if mark is not None:
        return str(mark.args[0])
    return item.nodeid.partition("::")[0] if _shares_a_fixture(item) else ""


def _shares_a_fixture(item: pytest.Item) -> bool:
    """Of ours: a plug-in's have no folder."""
    known = item._fixtureinfo.name2fixturedefs if isinstance(item, pytest.Function) else {}
    found = [known[name][-1] for name in getattr(item, "fixturenames", []) if name in known]
    return any(one.scope == "module" and one.baseid for one in found)


def _limit_s(item: pytest.Item) -> float:
    mark = item.get_closest_marker("timeout")
    if mark is not None:
        return float(mark.args[0])
    return _UNIT_S if item.get_closest_marker("unit") else _LIMIT_S
