"""The job of an attempt: names, folders, environment; and what its repr keeps to itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nni_manager.domain.experiment import AlgorithmSpec, ExperimentSpec, PlatformSpec
from nni_manager.domain.job import JobSpec
from nni_manager.platform_kit import payload
from trial_runner import protocol

pytestmark = pytest.mark.unit

SPEC = ExperimentSpec(
    name=None,
    search_space={},
    trial_command="python3 trial.py",
    trial_code_directory="/code",
    trial_concurrency=1,
    trial_gpu_number=None,
    max_experiment_duration_s=None,
    max_trial_number=None,
    max_trial_duration_s=None,
    debug=False,
    log_level="info",
    working_directory="/experiments",
    tuner_gpu_indices=None,
    tuner=AlgorithmSpec(name="Random"),
    assessor=None,
    platforms=(),
    grace_period_s=7.5,
)


def job(spec: ExperimentSpec = SPEC, attempt: int = 1) -> JobSpec:
    return payload.job_spec(
        spec,
        service=PlatformSpec(name="local", service="local", settings={}),
        experiment_id="exp",
        folder_of_trials=Path("/experiments/exp/trials"),
        caller_environment={"API_KEY": "s3cr3t"},
        job_name="nni_exp_exp_trial_abcde",
        trial_id="abcde",
        attempt=attempt,
        sequence_id=4,
        record='{"parameter_id": 0}',
    )


def test_a_job_carries_what_the_experiment_says() -> None:
    made = job()
    assert (made.name, made.experiment_id, made.trial_id) == ("nni_exp_exp_trial_abcde", "exp", "abcde")
    assert (made.command, made.code_directory, made.grace_period_s) == ("python3 trial.py", "/code", 7.5)
    assert made.parameter_record == '{"parameter_id": 0}'
    assert made.protocol_environment == {"NNI_EXP_ID": "exp", "NNI_TRIAL_JOB_ID": "abcde", "NNI_TRIAL_SEQ_ID": "4"}


@pytest.mark.parametrize(("attempt", "folder"), [(1, "abcde"), (2, "abcde-2"), (11, "abcde-11")])
def test_every_attempt_has_a_folder_of_its_own(attempt: int, folder: str) -> None:
    assert job(attempt=attempt).attempt_directory == f"/experiments/exp/trials/{folder}"


@pytest.mark.parametrize("number", [None, 0, 2])
def test_no_gpus_and_nothing_said_about_gpus_differ(number: int | None) -> None:
    assert job(replace(SPEC, trial_gpu_number=number)).gpu_number == number


def test_the_environment_of_the_caller_is_in_no_repr() -> None:
    assert "s3cr3t" not in repr(job())


def test_a_trial_finds_its_folders() -> None:
    assert payload.directory_environment("/trials/abcde", "/code") == {
        "NNI_SYS_DIR": "/trials/abcde",
        "NNI_OUTPUT_DIR": "/trials/abcde",
        "NNI_CODE_DIR": "/code",
        "NNI_OUTBOX": "/trials/abcde/outbox/main.jsonl",
    }


def test_the_stand_in_is_behind_all_that_the_user_put_on_the_path() -> None:
    given = {"PYTHONPATH": "/mine:/yours", "HOME": "/root"}
    assert payload.with_stand_in(given) == {"PYTHONPATH": f"/mine:/yours:{payload.STAND_IN}", "HOME": "/root"}
    assert given["PYTHONPATH"] == "/mine:/yours"


@pytest.mark.parametrize("given", [{}, {"PYTHONPATH": ""}])
def test_without_a_path_there_is_no_empty_entry(given: dict[str, str]) -> None:
    """An empty entry would be the working directory."""
    assert payload.with_stand_in(given)["PYTHONPATH"] == payload.STAND_IN


def test_the_stand_in_and_the_channel_are_where_the_path_says() -> None:
    folder = Path(payload.STAND_IN)
    assert (folder / "nni" / "__init__.py").is_file()
    module = protocol.COMMAND_CHANNEL.removeprefix("import://").split(".")[0]
    assert (folder / f"{module}.py").is_file()
