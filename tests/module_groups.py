"""Tests that share a fixture of their module run in one process: what is started once for them all is started once.

pytest-xdist's own groups are marks that it writes into the names of tests, which pytest 9.2 does not let it do any
more: each worker would have a daemon of its own for the tests of a module. So a worker tells the groups by a file, and
the process that hands out the tests reads them there.

What may take longest is begun first, so that no worker is left with it when the others are done. One worker begins at
the other end: tests that only compute use the processors while the long ones wait for other processes.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter, OrderedDict
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

#: What a worker is told by: the path of the file.
_TOLD = "module_groups"
#: The worker that begins with what is over soon.
_SHORT_FIRST = "gw0"
#: Seconds that a test without a limit of its own may take: in `pyproject.toml`; and one that starts no process.
_LIMIT_S, _UNIT_S = 120.0, 1.0


@pytest.hookimpl(tryfirst=True)  # pytest-xdist says in the same hook that the worker is ready
def pytest_collection_finish(session: pytest.Session) -> None:
    told = getattr(session.config, "workerinput", {})
    if told.get("workerid") == "gw0":  # they all find the same
        tests = {item.nodeid: (_group(item) or item.nodeid, _limit_s(item)) for item in session.items}
        Path(told[_TOLD]).write_text(json.dumps(tests))


def _group(item: pytest.Item) -> str:
    """Of the mark `xdist_group`, or the module where a fixture of it is shared; empty: none."""
    mark = item.get_closest_marker("xdist_group")
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


class ModuleGroups:
    """Lives in the process that hands out the tests."""

    def __init__(self) -> None:
        self._file = tempfile.NamedTemporaryFile(prefix="nni-groups-")  # gone with this

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput[_TOLD] = self._file.name

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Producer) -> LoadScopeScheduling:
        return _Scheduling(config, log, Path(self._file.name))

    def pytest_unconfigure(self) -> None:
        self._file.close()


class _Scheduling(LoadScopeScheduling):
    """A test without a group is by itself."""

    def __init__(self, config: pytest.Config, log: Producer, told: Path) -> None:
        super().__init__(config, log)
        self._told = told
        self._is_sorted = False

    @cached_property
    def _tests(self) -> dict[str, tuple[str, float]]:
        """Group and limit of each; all workers have found their tests by the time that this is asked for."""
        found: dict[str, tuple[str, float]] = json.loads(self._told.read_text())
        return found

    def _split_scope(self, nodeid: str) -> str:
        return self._tests[nodeid][0]

    def _assign_work_unit(self, node: WorkerController) -> None:
        if not self._is_sorted:
            self._sort()
        if node.gateway.id == _SHORT_FIRST:
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)

    def _sort(self) -> None:
        """By what the tests of a group may take altogether; what may take the same stays in the order of this run."""
        limits = Counter[str]()
        for group, limit_s in self._tests.values():
            limits[group] += int(limit_s)
        self.workqueue = OrderedDict(sorted(self.workqueue.items(), key=lambda unit: -limits[unit[0]]))
        self._is_sorted = True
