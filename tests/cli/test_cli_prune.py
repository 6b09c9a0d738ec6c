"""`nnictl experiment prune`, and what `list` and `show` say of disks."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result
from fake_manager import FakeManager, state

from nni_manager.cli.experiment.prune import chosen

pytestmark = pytest.mark.unit

Run = Callable[..., Result]
DAY_MS = 86_400_000


def closed(id: str, days: float = 0, best: float | None = None, **fields: Any) -> dict[str, Any]:
    """A stopped experiment that ended this number of days ago."""
    ended_ms = int(time.time() * 1000 - days * DAY_MS)
    found = None if best is None else {"trialId": "t", "value": best, "parameters": {}}
    return state(
        id, "STOPPED", createdMs=ended_ms, endedMs=ended_ms, best=found, **{"optimizeMode": "minimize", **fields}
    )


def removed(manager: FakeManager) -> list[str]:
    return [call[1] for call in manager.calls if call[0] == "delete"]


def test_old_ones_are_listed_and_removed(nnictl: Run, manager: FakeManager) -> None:
    manager.add(closed("old1", 40, 0.5), closed("new1", 2), state("runs", createdMs=0))
    found = nnictl("experiment", "prune", "--older-than", "30d", "--yes")
    assert found.exit_code == 0, found.output
    assert removed(manager) == ["old1"]
    assert "old1" in found.stdout and "2.05 MB" in found.stdout and "new1" not in found.stdout


def test_nothing_is_removed_without_an_answer(nnictl: Run, manager: FakeManager) -> None:
    manager.add(closed("old1", 40), closed("old2", 50))
    found = nnictl("experiment", "prune", "--older-than", "30d")
    assert found.exit_code == 1 and removed(manager) == []
    assert "old1" in found.output and "old2" in found.output and "nothing was removed" in found.output


@pytest.mark.parametrize("status", ["RUNNING", "DONE", "ERROR", "VIEWED", "STOPPING"])
def test_open_ones_are_never_touched(nnictl: Run, manager: FakeManager, status: str) -> None:
    manager.add(state("open", status, createdMs=1, endedMs=2))
    found = nnictl("experiment", "prune", "--older-than", "1d", "--keep-best", "1", "--yes")
    assert found.exit_code == 0 and removed(manager) == []


def test_what_is_removed_must_be_said(nnictl: Run, manager: FakeManager) -> None:
    manager.add(closed("old1", 40))
    assert nnictl("experiment", "prune", "--yes").exit_code == 2
    assert "30d" in nnictl("experiment", "prune", "--older-than", "a month", "--yes").output
    assert removed(manager) == []


def test_best_of_each_name_stay() -> None:
    known = [
        closed("a1", 5, 0.3),
        closed("a2", 4, 0.1),
        closed("a3", 3),
        closed("b1", 2, 0.3, name="b", optimizeMode="maximize"),
        closed("b2", 1, 0.9, name="b", optimizeMode="maximize"),
    ]
    now_ms = time.time() * 1000
    assert [one["id"] for one in chosen(known, now_ms, None, 1)] == ["a1", "a3", "b1"]
    assert [one["id"] for one in chosen(known, now_ms, None, 2)] == ["a3"]
    assert [one["id"] for one in chosen(known, now_ms, 3.5 * DAY_MS / 1000, 1)] == ["a1"]


def test_without_results_the_newest_stay() -> None:
    known = [closed("a1", 5), closed("a2", 4), closed("a3", 3)]
    assert [one["id"] for one in chosen(known, time.time() * 1000, None, 1)] == ["a1", "a2"]


@pytest.mark.parametrize("unknown", [{"counts": None}, {"trialsMade": None}])
def test_experiment_with_unknown_results_is_kept(nnictl: Run, manager: FakeManager, unknown: dict[str, Any]) -> None:
    manager.add(closed("known", 40, 0.5), closed("worse", 50, 0.9), closed("notread", 60, **unknown))
    found = nnictl("experiment", "prune", "--keep-best", "1", "--yes")
    assert found.exit_code == 0 and removed(manager) == ["worse"]
    assert "results are unknown: notread" in found.output


def test_unnamed_experiments_are_kept(nnictl: Run, manager: FakeManager) -> None:
    manager.add(closed("first", 40, 0.5, name=None), closed("second", 50, 0.9, name=None))
    found = nnictl("experiment", "prune", "--keep-best", "1", "--yes")
    assert removed(manager) == [] and "because they have no name: first, second" in found.output
    nnictl("experiment", "prune", "--older-than", "45d", "--yes")
    assert removed(manager) == ["second"]


def test_archived_ones_stay_unless_asked_for(nnictl: Run, manager: FakeManager) -> None:
    manager.add(closed("hidden", 40, archived=True), closed("shown", 40, archived=False))
    assert nnictl("experiment", "prune", "--older-than", "30d", "--yes").exit_code == 0
    assert removed(manager) == ["shown"]
    nnictl("experiment", "prune", "--older-than", "30d", "--archived", "--yes")
    assert "hidden" in removed(manager)


def test_results_in_another_sense_are_not_compared() -> None:
    known = [
        closed("loss1", 5, 0.1),
        closed("loss2", 4, 0.2),
        closed("accuracy1", 3, 0.9, optimizeMode="maximize"),
        closed("accuracy2", 2, 0.8, optimizeMode="maximize"),
        closed("several", 1, objectives={"loss": "minimize", "size": "minimize"}),
    ]
    assert [one["id"] for one in chosen(known, time.time() * 1000, None, 1)] == ["loss2", "accuracy2"]


def test_unknown_disk_does_not_stop_commands(nnictl: Run, manager: FakeManager) -> None:
    from nni_manager.domain.errors import NotFound, StoreUnavailable

    def refuse(*_: str) -> dict[str, Any]:
        raise StoreUnavailable("its disk does not respond")

    def is_unknown(*_: str) -> dict[str, Any]:
        raise NotFound("no such address")

    manager.add(state("abc"), closed("old1", 40))
    for answer in (refuse, is_unknown):
        manager.disk, manager.disk_use = answer, answer  # type: ignore[method-assign]
        assert "abc" in nnictl("experiment", "list").stdout
        assert "unknown" in nnictl("experiment", "show", "abc").stdout
        assert '"disk": null' in nnictl("experiment", "show", "abc", "--json").stdout
    asked = nnictl("experiment", "prune", "--older-than", "30d")
    assert "1 of unknown size" in asked.output and removed(manager) == []
    assert nnictl("experiment", "prune", "--older-than", "30d", "--yes").exit_code == 0
    assert removed(manager) == ["old1"]


def test_failed_removal_does_not_stop_others(nnictl: Run, manager: FakeManager) -> None:
    from nni_manager.domain.errors import Conflict

    manager.add(closed("old1", 40), closed("old2", 40))
    delete = manager.delete

    def refuse(id: str) -> None:
        if id == "old1":
            raise Conflict("it is at work")
        delete(id)

    manager.delete = refuse  # type: ignore[method-assign]
    found = nnictl("experiment", "prune", "--older-than", "1d", "--yes")
    assert found.exit_code == 1 and removed(manager) == ["old2"] and "old1: it is at work" in found.output


def test_list_warns_of_a_disk_that_is_nearly_full(nnictl: Run, manager: FakeManager) -> None:
    manager.add(state("abc"))
    assert "warning" not in nnictl("experiment", "list").stderr
    manager.disk_warning = "the disk of /data has 0.5 GiB left"
    assert "warning: the disk of /data has 0.5 GiB left" in nnictl("experiment", "list").stderr


def test_show_has_code_and_disk(nnictl: Run, manager: FakeManager) -> None:
    code = {
        "directory": "/c",
        "commit": "abcdef" * 7,
        "branch": "main",
        "diff": "a\nb\n",
        "untracked": [],
        "problem": "",
    }
    python = {"executable": "/py", "version": "3.12.4", "packages": [{}, {}], "problem": ""}
    manager.add(state("abc"))
    manager.provenance_of["abc"] = {"code": code, "python": python, "host": "laptop"}
    text = nnictl("experiment", "show", "abc").stdout
    for words in (
        "commit abcdefabcdef of main, 2 lines of diff",
        "/py, 3.12.4, 2 packages",
        "laptop",
        "2.05 MB in 12 files",
    ):
        assert words in text
