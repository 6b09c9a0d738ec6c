"""Which checkpoints a plan notes at the ends of trials, and which it has removed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nni_manager.domain.experiment import ExperimentSpec, NeedlessCheckpoint
from nni_manager.domain.job import JobHandle
from nni_manager.platform_kit.contract import Capabilities
from nni_manager.scheduler.planning.decisions import NoteCheckpoint, RemoveCheckpoints
from nni_manager.scheduler.planning.snapshot import ServiceState
from tests.scheduler.pictures import Plan, ended, running, spec

pytestmark = pytest.mark.unit

REMOVES = ServiceState(capabilities=Capabilities(watches=True, reads_files=True, removes_checkpoints=True))
JOB = JobHandle(platform="local", version=1, job_name="nni_exp_exp1_trial_aaaaa", data="")
NEEDLESS = NeedlessCheckpoint("aaaaa", (("fake", JOB),))


def _spec(kept: int | None) -> ExperimentSpec:
    return replace(spec(), kept_checkpoints=kept)


def _noted(kept: int | None, state: ServiceState, *, is_failed: bool = False) -> list[str]:
    trial = ended("aaaaa", "FAILED", exit_code=3) if is_failed else ended("aaaaa")
    found = Plan(trial, config=_spec(kept), services={"fake": state})
    return [record.trial_id for record in found.records(NoteCheckpoint)]


def test_the_checkpoint_of_a_trial_that_ends_well_is_noted() -> None:
    assert _noted(0, REMOVES) == ["aaaaa"] and _noted(2, REMOVES) == ["aaaaa"]


def test_checkpoint_is_not_noted_if_it_stays() -> None:
    assert _noted(None, REMOVES) == _noted(0, REMOVES, is_failed=True) == _noted(0, ServiceState()) == []


def test_unneeded_checkpoint_is_removed() -> None:
    found = Plan(running("bbbbb"), config=_spec(0), needless=(NEEDLESS,), services={"fake": REMOVES})
    calls = [call for call in found.decisions.calls if isinstance(call, RemoveCheckpoints)]
    assert [call.checkpoints for call in calls] == [(NEEDLESS,)]
