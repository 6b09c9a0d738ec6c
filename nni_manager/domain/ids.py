"""Ids of experiments and trials, and the job name as a pure function of them."""

from __future__ import annotations

import re
import secrets
import string
from collections.abc import Iterator

from trial_runner import protocol

_LETTERS = string.ascii_lowercase
_ALPHABET = string.ascii_lowercase + string.digits

#: Ids that users may choose for an experiment, as in NNI.
EXPERIMENT_ID = re.compile(r"[A-Za-z0-9_-]{1,32}")
#: Ids that a caller may not choose: words of the API's paths, and folders of the data directory.
NOT_FOR_EXPERIMENTS = frozenset({"all", "code", "databases", "events", "keeper", "stop", "view"})
#: NNI's trial ids have mixed case and are read; new ones are lower-case, as names on clusters are.
TRIAL_ID = re.compile(r"[A-Za-z][A-Za-z0-9]{4}")
#: Number of an attempt in an address.
ATTEMPT = re.compile(r"[1-9][0-9]{0,5}")
#: Random id by which a trial runner tells the containers of one attempt apart.
CONTAINER = re.compile(r"[0-9a-f]{8,64}")


def new_experiment_id() -> str:
    """Eight characters of ``[a-z0-9]``."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(8))


def new_trial_ids() -> Iterator[str]:
    """Endless random trial ids ``[a-z][a-z0-9]{4}``; the caller skips those already taken."""
    while True:
        number = secrets.randbelow(len(_LETTERS) * len(_ALPHABET) ** 4)
        number, first = divmod(number, len(_LETTERS))
        rest = []
        for _ in range(4):
            number, digit = divmod(number, len(_ALPHABET))
            rest.append(_ALPHABET[digit])
        yield _LETTERS[first] + "".join(rest)


def job_name(experiment_id: str, trial_id: str, attempt: int) -> str:
    """The documented name of a job; later attempts carry ``-2``, ``-3``…"""
    return f"nni_exp_{experiment_id}_trial_{trial_id}{_suffix(attempt)}"


def attempt_directory(trial_id: str, attempt: int) -> str:
    """Name of an attempt's folder below ``trials/``."""
    return f"{trial_id}{_suffix(attempt)}"


def attempt_directory_of(job_name: str) -> str:
    """The directory of an attempt, from the name of its job."""
    return job_name.rpartition("_trial_")[2]


def trial_of_job(job_name: str) -> tuple[str, str]:
    """The ids of experiment and trial, from the name of an attempt's job."""
    experiment, _, attempt = job_name.rpartition("_trial_")
    return experiment.removeprefix("nni_exp_"), attempt.partition("-")[0]


def checkpoint_directory_of(attempt_directory: str) -> str:
    """Name of a trial's checkpoint folder, next to those of its attempts, from the name of an attempt's folder."""
    return f"{attempt_directory.partition('-')[0]}{protocol.CHECKPOINT_SUFFIX}"


def _suffix(attempt: int) -> str:
    return f"-{attempt}" if attempt > 1 else ""
