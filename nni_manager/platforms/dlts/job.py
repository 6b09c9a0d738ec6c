"""The job that is sent to DLWorkspace for an attempt."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from nni_manager.domain.ids import attempt_directory_of
from nni_manager.domain.job import JobSpec
from trial_runner import protocol

#: Maximum length of an id, which becomes part of pod names; the database column has the same limit.
_MOST = 50
_SAFE = re.compile(r"[a-z0-9-]+")
_NONCE = 8


def job_id(experiment_id: str, job_name: str, nonce: str) -> str:
    """The id of a job, unique and chosen by the manager: a job with this id is ours.

    DNS-safe, and within the database's limit.
    """
    attempt = attempt_directory_of(job_name)
    found = f"nni-{experiment_id}-{attempt}{_suffix(nonce)}"
    if len(found) <= _MOST and _SAFE.fullmatch(found):
        return found
    # the experiment's id is too long, or not valid in a name
    return f"{_hashed_prefix(experiment_id)}{attempt.lower()}{_suffix(nonce)}"


def ids_of(experiment_id: str, job_name: str) -> re.Pattern[str]:
    """A pattern of all ids of a job, with any nonce."""
    attempt = re.escape(attempt_directory_of(job_name).lower())
    either = "|".join(re.escape(one) for one in (f"nni-{experiment_id}-", _hashed_prefix(experiment_id)))
    return re.compile(f"(?:{either}){attempt}(?:-n[a-z0-9]{{1,{_NONCE}}})?")


def _hashed_prefix(experiment_id: str) -> str:
    return f"nni-{hashlib.sha256(experiment_id.encode()).hexdigest()[:16]}-"


def _suffix(nonce: str) -> str:
    """The end of an id that stands for the nonce; an `n` distinguishes it from an attempt's number."""
    plain = re.sub(r"[^a-z0-9]", "", nonce.lower())[:_NONCE]
    return f"-n{plain}" if plain else ""


def job(id: str, spec: JobSpec, *, team: str, email: str, image: str, gpu_type: str, command: str) -> dict[str, Any]:
    """The job as it is sent, with all fields that the service requires."""
    token = spec.runner_environment.get(protocol.ENV_TOKEN, "")
    return {
        "userName": email,
        "team": team,
        "vcName": team,
        "jobId": id,
        "jobName": id,
        "jobType": "training",
        "jobtrainingtype": "RegularJob",
        "preemptionAllowed": "False",
        "image": image,
        "cmd": command,
        "gpuType": gpu_type,
        "resourcegpu": spec.gpu_number or 0,
        "workPath": "./",
        "enableworkpath": True,
        "dataPath": "./",
        "enabledatapath": False,
        "jobPath": "",
        "enablejobpath": True,
        "mountpoints": [],
        "interactivePorts": [],
        # the service puts it between double quotes in a YAML template; a quote would end the text there
        "envs": [{"name": protocol.ENV_TOKEN, "value": json.dumps(token, ensure_ascii=False)[1:-1]}] if token else [],
        "ssh": False,
        "ipython": False,
        "tensorboard": False,
        "hostNetwork": False,
        "isPrivileged": False,
        "hostIPC": False,
        "useGPUTopology": False,
    }
