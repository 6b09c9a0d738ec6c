"""The variables of a job that name its folders and what of ours it may import. The same for every platform."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from nni_manager.domain.ids import checkpoint_directory_of
from trial_runner import protocol


def directory_environment(attempt: str, code: str) -> dict[str, str]:
    """The variables that name a trial's folders; `attempt` and `code` as the job itself sees them."""
    return {
        protocol.ENV_SYSTEM_DIR: attempt,
        protocol.ENV_OUTPUT_DIR: attempt,
        protocol.ENV_CODE_DIR: code,
        protocol.ENV_CHECKPOINT_DIR: checkpoint_beside(attempt),
        protocol.ENV_OUTBOX: f"{attempt}/{protocol.MAIN_OUTBOX}",
    }


def checkpoint_beside(attempt: str) -> str:
    """The folder of a trial's checkpoints; `attempt`: that of one of its attempts."""
    parent, _, name = attempt.rpartition("/")
    return f"{parent}/{checkpoint_directory_of(name)}"


def with_stand_in(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment with the stand-in `nni` and the SDK's channel on the path, behind all that the user put there."""
    path = environment.get("PYTHONPATH")
    return {**environment, "PYTHONPATH": f"{path}:{STAND_IN}" if path else STAND_IN}


def _of_trial_runner(path: str) -> str:
    return str(Path(protocol.__file__).parent / path)


STAND_IN = _of_trial_runner("stand_in")
#: The program that a user's Python runs to host their tuners and assessors.
TUNER_HOST = _of_trial_runner("tuner_host/__main__.py")
