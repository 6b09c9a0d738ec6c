"""The job of an attempt: its command, its environment, its files. The same for every platform."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from nni_manager.domain.experiment import ExperimentSpec, PlatformSpec
from nni_manager.domain.ids import attempt_directory
from nni_manager.domain.job import JobSpec
from trial_runner import protocol


def job_spec(
    spec: ExperimentSpec, *, service: PlatformSpec, experiment_id: str, folder_of_trials: Path,
    caller_environment: Mapping[str, str], job_name: str, trial_id: str, attempt: int, sequence_id: int, record: str,
    stored: Mapping[str, int] = {}, is_repeat: bool = False, intended_ms: int = 0, nonce: str = "",
    storage_key: str = "", runner_environment: Mapping[str, str] = {},
) -> JobSpec:  # fmt: skip
    """Everything a platform needs to start one attempt. `folder_of_trials`: the experiment's ``trials``.

    A service may have a command, a code directory and a number of GPUs of its own.
    """
    own = service.settings
    directory = str(folder_of_trials / attempt_directory(trial_id, attempt))
    return JobSpec(
        name=job_name,
        experiment_id=experiment_id,
        trial_id=trial_id,
        attempt=attempt,
        sequence_id=sequence_id,
        command=str(own.get("trialCommand", spec.trial_command)),
        parameter_record=record,
        protocol_environment={
            protocol.ENV_EXPERIMENT_ID: experiment_id,
            protocol.ENV_TRIAL_ID: trial_id,
            protocol.ENV_SEQUENCE_ID: str(sequence_id),
        },
        caller_environment=caller_environment,
        code_directory=str(own.get("trialCodeDirectory", spec.trial_code_directory)),
        attempt_directory=directory,
        gpu_number=_gpu_number(own.get("trialGpuNumber", spec.trial_gpu_number)),
        grace_period_s=spec.grace_period_s,
        stored=stored,
        is_repeat=is_repeat,
        intended_ms=intended_ms,
        nonce=nonce,
        storage_key=storage_key,
        runner_environment=runner_environment,
    )


def _gpu_number(raw: object) -> int | None:
    return raw if isinstance(raw, int) else None


def directory_environment(attempt: str, code: str) -> dict[str, str]:
    """The variables that name a trial's folders; `attempt` and `code` as the job itself sees them."""
    return {
        protocol.ENV_SYSTEM_DIR: attempt,
        protocol.ENV_OUTPUT_DIR: attempt,
        protocol.ENV_CODE_DIR: code,
        protocol.ENV_OUTBOX: f"{attempt}/{protocol.MAIN_OUTBOX}",
    }


def with_stand_in(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment with the stand-in `nni` and the SDK's channel on the path, behind all that the user put there."""
    path = environment.get("PYTHONPATH")
    return {**environment, "PYTHONPATH": f"{path}:{STAND_IN}" if path else STAND_IN}


def _of_trial_runner(path: str) -> str:
    return str(Path(protocol.__file__).parent / path)


STAND_IN = _of_trial_runner("stand_in")
#: What any Python runs as a host of users' tuners and assessors.
TUNER_HOST = _of_trial_runner("tuner_host/__main__.py")
