"""A service's own word for an end is for people: it decides nothing, also where it reads like one of our reasons."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from nni_manager.domain.attempt import Observation
from nni_manager.domain.job import JobState
from nni_manager.domain.reason import Reason
from nni_manager.domain.trial import Outcome, outcome
from nni_manager.domain.trial_status import TrialStatus
from nni_manager.kubernetes.jobs.job_memory import JobMemory, Read
from nni_manager.platforms.adl import states as adl
from nni_manager.platforms.dlc import states as dlc
from nni_manager.platforms.dlts import states as dlts
from nni_manager.platforms.frameworkcontroller import states as frameworkcontroller
from nni_manager.platforms.kubeflow import states as kubeflow
from nni_manager.platforms.openpai import states as openpai
from nni_manager.platforms.scripted import states as scripted
from nni_manager.platforms.scripted.config import Rule
from nni_manager.platforms.scripted.jobs import Job

pytestmark = pytest.mark.unit

#: A failed job as a service tells it, by the word that it has for the end.
Failed = Callable[[str], Observation]


def _followed(read: Read, job: dict[str, Any], container: str = "Error") -> Observation:
    """The report on a Kubernetes job after its container ended with exit code 1 and this reason."""
    terminated = {"exitCode": 1, "reason": container, "finishedAt": "2026-01-01T00:00:00Z"}
    statuses = [{"name": "c", "state": {"terminated": terminated}}]
    pod = {"metadata": {"name": "p-0"}, "status": {"phase": "Failed", "containerStatuses": statuses}}
    memory = JobMemory(job_name="j", name="n", uid="u", container="c", object=job, pods={"p-0": pod})
    return memory.report(read, 1000.0)[0]


def _pod(word: str) -> Observation:
    return _followed(lambda _: Observation(state=JobState.FAILED), {}, word)


def _kubeflow(word: str) -> Observation:
    failed = {"type": "Failed", "status": "True", "reason": word}
    return _followed(kubeflow.report, {"status": {"conditions": [failed]}})


def _adl(word: str) -> Observation:
    return _followed(adl.report, {"status": {"phase": "Failed", "reason": word}})


def _frameworkcontroller(word: str) -> Observation:
    ended = {"code": 1, "phrase": word, "type": {"name": "Failed"}}
    status = {"state": frameworkcontroller.COMPLETED, "attemptStatus": {"completionStatus": ended}}
    return _followed(frameworkcontroller.report, {"status": status})


def _openpai(word: str) -> Observation:
    return openpai.report({"state": "FAILED", "appExitCode": -1}, {"appExitSpec": {"phrase": word}})


def _dlc(word: str) -> Observation:
    return dlc.job_report({"Status": "Failed", "ReasonCode": word, "ReasonMessage": word}, "")


def _dlts(word: str) -> Observation:
    return dlts.report({"jobStatus": "failed", "errorMsg": word})


def _scripted(word: str) -> Observation:
    rule = Rule.model_validate({"exitCode": 1, "reason": word})
    job = Job(name="j", rule=rule, submitted_ms=0, attempt_directory="", system_directory="", grace_s=1.0)
    return scripted.job_report(job, "none", None, 10_000)


#: Words by which an adapter itself tells that machines were taken away.
TRANSLATED = {(_dlc, "PREEMPTED")}


@pytest.mark.parametrize("word", [one.value for one in Reason])
@pytest.mark.parametrize("failed", [_pod, _kubeflow, _adl, _frameworkcontroller, _openpai, _dlc, _dlts, _scripted])
def test_a_native_reason_that_reads_like_ours_is_not_believed(failed: Failed, word: str) -> None:
    if (failed, word) in TRANSLATED:
        assert failed(word).state is JobState.PREEMPTED
        return
    found = outcome(failed(word), None, platform_retries=2, user_retries=0)
    assert found == Outcome(status=TrialStatus.FAILED, reason=Reason.USER_CODE)


@pytest.mark.parametrize(
    ("failed", "word"),
    [
        (_pod, "OOMKilled"),
        (_frameworkcontroller, "OOMKilled"),
        (_scripted, "OOMKilled"),
        (_openpai, "UserContainerDockerOOMKilled"),
        (_openpai, "ContainerTensorflowOOMKilled"),
    ],
)
def test_native_out_of_memory_reason_is_translated(failed: Failed, word: str) -> None:
    assert outcome(failed(word), None, platform_retries=2, user_retries=0).reason is Reason.OUT_OF_MEMORY
