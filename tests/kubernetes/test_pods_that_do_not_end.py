"""Pods that are being deleted: how long they may take, and reports on jobs whose pods do not end."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from nni_manager.domain.attempt import Observation
from nni_manager.domain.job import JobState
from nni_manager.kubernetes.api.names import REPORTS
from nni_manager.kubernetes.jobs.job_memory import JobMemory

pytestmark = pytest.mark.unit

_AGES_AGO = "2026-01-01T00:00:00Z"


def pod(ends_at: str, **spec: Any) -> dict[str, Any]:
    """A running pod that is being deleted. `ends_at`: the end of its grace period."""
    meta = {"name": "n-0", "labels": {REPORTS: "first"}, "deletionTimestamp": ends_at}
    return {"metadata": meta, "spec": {"nodeName": "node-1"} | spec, "status": {"phase": "Running"}}


def in_seconds(seconds: float) -> str:
    moment = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def report(
    found: dict[str, Any], meta: dict[str, Any] | None = None, **fields: Any
) -> tuple[Observation, float | None]:
    job = {"kind": "Job", "metadata": meta or {}}
    memory = JobMemory(job_name="j", name="n", uid="", container="c", object=job, pods={"n-0": found}, **fields)
    return memory.report(lambda _: Observation(state=JobState.RUNNING), 1000.0)


def test_pod_on_a_dead_node_is_unreachable_at_first_sight() -> None:
    """A restarted manager does not know how long the pod has been leaving."""
    found, again_s = report(pod(_AGES_AGO))
    assert (found.state, again_s) == (JobState.UNKNOWN, None)
    assert found.unreachable == "node node-1 does not answer, and pod n-0 has not ended"


def test_pod_without_a_node_is_not_unreachable() -> None:
    """A finalizer may keep it."""
    assert report(pod(_AGES_AGO, nodeName=""))[0].state is JobState.RUNNING


@pytest.mark.parametrize("removed", [{}, {"removed_s": 999.0}], ids=["job exists", "job is gone"])
@pytest.mark.parametrize(
    ("ends_in_s", "of_spec"), [(1800, 30), (0, 0)], ids=["drained with a longer grace period", "no grace period"]
)
def test_pod_has_its_own_grace_period(ends_in_s: int, of_spec: int, removed: dict[str, Any]) -> None:
    found, again_s = report(pod(in_seconds(ends_in_s), terminationGracePeriodSeconds=of_spec), **removed)
    assert found.state is JobState.RUNNING
    assert again_s is not None and ends_in_s + 50 < again_s <= ends_in_s + 60


@pytest.mark.parametrize(
    "deleted", [{"meta": {"deletionTimestamp": _AGES_AGO}}, {"removed_s": 1000.0, "was_deleted": True}]
)
def test_deleted_job_on_a_dead_node_is_cancelled(deleted: dict[str, Any]) -> None:
    assert report(pod(_AGES_AGO), **deleted)[0].state is JobState.CANCELLED
    found = report(pod(_AGES_AGO), is_cancelled=True, **deleted)[0]
    assert found.state is JobState.UNKNOWN, "the manager stopped it, and it may still run"
