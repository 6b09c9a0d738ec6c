"""Configs in NNI's databases that have its first format."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nni_manager.config.experiment_file import canonical_of_nni, from_canonical
from nni_manager.domain.errors import ConfigInvalid

pytestmark = pytest.mark.unit

SPACE = {"x": {"_type": "uniform", "_value": [0, 1]}}
LOCAL: dict[str, Any] = {
    "authorName": "me",
    "experimentName": "old",
    "trialConcurrency": 1,
    "maxExecDuration": 3600,
    "maxTrialNum": 4,
    "searchSpace": json.dumps(SPACE),
    "trainingServicePlatform": "local",
    "tuner": {
        "builtinTunerName": "TPE",
        "classArgs": {"optimize_mode": "maximize"},
        "checkpointDir": "/old/checkpoint",
    },
    "versionCheck": True,
    "multiThread": False,
    "clusterMetaData": [{"key": "codeDir", "value": "/code"}, {"key": "command", "value": "python3 trial.py"}],
}
TRIAL = {"command": "python3 trial.py", "codeDir": "/code", "gpuNum": 1}
MACHINE = {"ip": "10.0.0.1", "port": 22, "username": "ann", "sshKeyPath": "/keys/ann"}
REMOTE = {
    **LOCAL,
    "trainingServicePlatform": "remote",
    "clusterMetaData": [{"key": "machine_list", "value": [MACHINE]}, {"key": "trial_config", "value": TRIAL}],
}
#: 2.x stored some of the second format's fields, too.
ADL = {
    **LOCAL,
    "maxExperimentDuration": "3600s",
    "maxTrialNumber": 4,
    "trainingServicePlatform": "adl",
    "trainingService": {"platform": "adl"},
    "clusterMetaData": [{"key": "trial_config", "value": {**TRIAL, "image": "team/mnist"}}],
}


def test_local_experiment() -> None:
    spec = from_canonical(canonical_of_nni(LOCAL, "/data"))
    assert (spec.name, spec.search_space, spec.working_directory) == ("old", SPACE, "/data")
    assert (spec.trial_command, spec.trial_code_directory) == ("python3 trial.py", "/code")
    assert (spec.max_experiment_duration_s, spec.max_trial_number, spec.trial_concurrency) == (3600, 4, 1)
    assert (spec.tuner.name, spec.tuner.class_args) == ("TPE", {"optimize_mode": "maximize"})


def test_machines_of_a_remote_experiment() -> None:
    spec = from_canonical(canonical_of_nni(REMOTE, "/data"))
    (machine,) = spec.platforms[0].settings["machineList"]
    assert (machine["host"], machine["user"], machine["sshKeyFile"]) == ("10.0.0.1", "ann", "/keys/ann")
    assert spec.trial_gpu_number == 1


def test_fields_of_both_formats() -> None:
    spec = from_canonical(canonical_of_nni(ADL, "/data"))
    assert (spec.platforms[0].name, spec.max_trial_number) == ("adl", 4)


def test_config_of_the_second_format_stays() -> None:
    config = {"trainingService": {"platform": "local"}}
    assert canonical_of_nni(config, "/data") is config


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"clusterMetaData": []}, "trial"),
        ({"trainingServicePlatform": "nowhere"}, "nowhere"),
        ({"searchSpace": "{"}, "Expecting"),
        ({"clusterMetaData": {}}, "trial"),
        ({"clusterMetaData": ["codeDir"]}, "TypeError"),
    ],
)
def test_unconvertible_config_is_refused_with_one_sentence(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigInvalid, match=reason) as refused:
        from_canonical({**LOCAL, **fields})
    assert len(refused.value.problems) == 1
    assert str(refused.value).endswith("You can view the experiment, but not continue it")
