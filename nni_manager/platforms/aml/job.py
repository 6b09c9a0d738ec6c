"""The job of an attempt as Azure ML expects it, and the files that start its container."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Mapping
from typing import Any

from nni_manager.domain.experiment import Json
from nni_manager.domain.job import JobSpec
from nni_manager.platforms.aml.config import AmlConfig
from nni_manager.shared_storage.mounted_storage import variables_of
from trial_runner import protocol

#: Name of the output that is the attempt's folder in the container.
_OUTPUT = "nni"
#: Variable that distinguishes jobs of one name. A second PUT may change tags, but not variables.
_NONCE = "NNI_MANAGER_NONCE"
_DATASTORE = "workspaceblobstore"
VARIABLES_FILE = "variables.sh"
START_FILE, RUNNER_FILE, CODE_FILE = "nni-start.sh", "nni-runner.pyz", "nni-code.tar.gz"
#: The script in the code asset, shared by all trials. Argument: the attempt's folder on the workspace's storage.
START = f"""\
folder=$1
if ! . "$folder/{VARIABLES_FILE}"; then
    echo "$folder has no start files: the job does not see the workspace's storage. Check its datastore." >&2
    exit {protocol.EXIT_USAGE}
fi
if ! command -v python3 >/dev/null; then
    echo "This image has no python3. Use an image with Python 3.7 or newer." >&2
    exit {protocol.EXIT_USAGE}
fi
export {protocol.ENV_SYSTEM_DIR}="$folder" {protocol.ENV_CODE_DIR}="$PWD/nni-code" {protocol.ENV_PIECES}=1
mkdir -p "${protocol.ENV_CODE_DIR}" && python3 -m tarfile -e {CODE_FILE} "${protocol.ENV_CODE_DIR}" ||
    exit {protocol.EXIT_BAD_CODE}
exec python3 {RUNNER_FILE}
"""


def tag_of(experiment_id: str) -> str:
    """The tag of an experiment's jobs. The id is in the tag's name, as the service finds tags by name."""
    return f"nni-exp-{experiment_id}"


def tags(spec: JobSpec) -> dict[str, str]:
    found = {tag_of(spec.experiment_id): "1", "nni-trial": spec.trial_id, "nni-job": spec.name}
    return found | ({"nni-nonce": spec.nonce} if spec.nonce else {})


def is_ours(job: Any, spec: JobSpec) -> bool:
    """Whether a job with that name belongs to this attempt."""
    found = _tags_of(job)
    return all(found.get(name) == value for name, value in tags(spec).items())


def name_of(job: Any) -> str:
    """Our name of a listed job; empty: it is not ours."""
    return str(_tags_of(job).get("nni-job", ""))


def _tags_of(job: Any) -> Mapping[str, Any]:
    return ((job or {}).get("properties") or {}).get("tags") or {}


def environment_name(config: AmlConfig) -> str:
    return f"nni-{hashlib.sha256(config.docker_image.encode()).hexdigest()[:16]}"


def variables(spec: JobSpec) -> str:
    """Shell text that sets the runner's variables, except the token."""
    told = variables_of(spec, "aml")
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in told.items())


def creation(config: AmlConfig, spec: JobSpec, *, resource: str, code: str, folder: str) -> Json:
    """The body that creates a job. It never varies, as a job cannot be changed.

    `code`: id of the asset; `folder`: prefix of the blobs.
    """
    token = spec.runner_environment.get(protocol.ENV_TOKEN)
    secrets: Mapping[str, str] = {protocol.ENV_TOKEN: token} if token else {}
    uri = f"azureml://datastores/{_DATASTORE}/paths/{folder}"
    properties: dict[str, Any] = {
        "jobType": "Command",
        "experimentName": f"nni_exp_{spec.experiment_id}",
        "displayName": spec.name,
        "command": f"sh {START_FILE} ${{{{outputs.{_OUTPUT}}}}}",
        "codeId": code,
        "environmentId": f"{resource}/environments/{environment_name(config)}/versions/1",
        "computeId": f"{resource}/computes/{config.compute_target}",
        "environmentVariables": {**spec.protocol_environment, **secrets, _NONCE: spec.nonce},
        "outputs": {_OUTPUT: {"jobOutputType": "uri_folder", "mode": "ReadWriteMount", "uri": uri}},
        "resources": {"instanceCount": 1},
        "tags": tags(spec),
    }
    if config.identity is not None:
        properties["identity"] = {"identityType": config.identity}
    if config.job_timeout is not None:
        properties["limits"] = {"jobLimitsType": "Command", "timeout": f"PT{config.job_timeout}M"}
    return {"properties": properties}
