"""The job of an attempt: names, folders, environment; and what its repr keeps to itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from nni_manager.domain.attempt import Attempt
from nni_manager.domain.experiment import LiveSpec, PlatformSpec
from nni_manager.domain.job import JobSpec
from nni_manager.scheduler.planning.decisions import Submit
from nni_manager.scheduler.turns.actions import JobFactory
from tests.scheduler.pictures import spec

pytestmark = pytest.mark.unit


async def job(number: int = 1, settings: dict[str, Any] | None = None, **config: Any) -> JobSpec:
    """`settings`: of the training service; `config`: of the experiment."""
    whole = spec(trial_command="python3 trial.py", trial_code_directory="/code", grace_period_s=7.5, **config)
    factory = JobFactory(
        experiment_id="exp",
        spec=LiveSpec(whole),
        folder_of_trials=Path("/experiments/exp/trials"),
        caller_environment={"API_KEY": "s3cr3t"},
        trial_listener=cast(Any, None),
        nonce="n0",
    )
    attempt = Attempt("abcde", number, "nni_exp_exp_trial_abcde", service="local", intended_ms=5)
    submit = Submit(attempt=attempt, sequence_id=4, record='{"parameter_id": 0}', stored={"a": 1}, is_repeat=True)
    service = PlatformSpec(name="local", service="local", settings=settings or {})
    return await factory.make(submit, service, has_runner=False)


async def test_job_contains_experiment_settings() -> None:
    made = await job()
    assert (made.name, made.experiment_id, made.trial_id) == ("nni_exp_exp_trial_abcde", "exp", "abcde")
    assert (made.command, made.code_directory, made.grace_period_s) == ("python3 trial.py", "/code", 7.5)
    assert (made.stored, made.is_repeat, made.intended_ms, made.nonce) == ({"a": 1}, True, 5, "n0")
    assert made.runner_environment == {}
    assert made.parameter_record == '{"parameter_id": 0}'
    assert made.protocol_environment == {"NNI_EXP_ID": "exp", "NNI_TRIAL_JOB_ID": "abcde", "NNI_TRIAL_SEQ_ID": "4"}


@pytest.mark.parametrize(("attempt", "folder"), [(1, "abcde"), (2, "abcde-2"), (11, "abcde-11")])
async def test_every_attempt_has_a_folder_of_its_own(attempt: int, folder: str) -> None:
    assert (await job(attempt)).attempt_directory == f"/experiments/exp/trials/{folder}"


@pytest.mark.parametrize("number", [None, 0, 2])
async def test_zero_gpus_differ_from_unspecified_gpus(number: int | None) -> None:
    assert (await job(trial_gpu_number=number)).gpu_number == number


async def test_the_environment_of_the_caller_is_in_no_repr() -> None:
    assert "s3cr3t" not in repr(await job())


async def test_service_overrides_command_code_and_gpus() -> None:
    own = {"trialCommand": "sh run.sh", "trialCodeDirectory": "/elsewhere", "trialGpuNumber": 0}
    made = await job(settings=own, trial_gpu_number=2)
    assert (made.command, made.code_directory, made.gpu_number) == ("sh run.sh", "/elsewhere", 0)
