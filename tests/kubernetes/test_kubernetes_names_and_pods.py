"""Names, labels and pods of jobs in a cluster."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from nni_manager.domain.job import JobSpec
from nni_manager.kubernetes.api import names
from nni_manager.kubernetes.jobs.pod import PodSettings, Role, pod_template
from trial_runner import protocol

pytestmark = pytest.mark.unit

_PODS = PodSettings(platform="kubeflow", channel="push", runner_map="runner")


def job(experiment_id: str = "abcd1234", trial_id: str = "abcde", attempt: int = 1, **fields: Any) -> JobSpec:
    return JobSpec(
        name=f"nni_exp_{experiment_id}_trial_{trial_id}{attempt}",
        experiment_id=experiment_id,
        trial_id=trial_id,
        attempt=attempt,
        sequence_id=0,
        **{
            "command": "python3 trial.py",
            "parameter_record": "{}",
            "protocol_environment": {},
            "caller_environment": {},
            "code_directory": "/code",
            "attempt_directory": "/attempt",
            "runner_environment": {protocol.ENV_TOKEN: "s3cret", protocol.ENV_MANAGER_URL: "http://m"},
            **fields,
        },
    )


def role(**fields: Any) -> Role:
    values: dict[str, Any] = {
        "name": "worker",
        "count": 1,
        "command": "run",
        "image": "i",
        "container": "c",
        "reports": True,
        **fields,
    }
    return Role(**values)


def test_names_are_legal_and_differ() -> None:
    jobs = [job(), job(attempt=2), job("ABCD1234"), job("abcd-1234"), job("abcd_1234"), job("x" * 32), job("X" * 32)]
    for made, legal in (
        (list(map(names.dashed, jobs)), r"[a-z]([-a-z0-9]*[a-z0-9])?"),
        ([names.alphanumeric(one, 12) for one in jobs], r"[a-z0-9]+"),
    ):
        assert len(set(made)) == len(jobs)
        for name in made:
            assert re.fullmatch(legal, name), name
            assert len(f"{name}-worker-0") <= 63
    assert names.dashed(jobs[0]) == "nni-exp-abcd1234-trial-abcde", "as NNI calls it"


def test_an_object_is_ours_by_labels_name_and_nonce() -> None:
    spec = job(nonce="n1")
    labels = names.job_labels(spec, "kubeflow", "name", "0a1b2c3d")
    meta: dict[str, Any] = {"labels": labels, "annotations": {names.DOCUMENTED_NAME: spec.name}}
    assert names.is_ours({"metadata": meta}, labels, spec.name)
    assert names.is_ours({"metadata": meta}, {**labels, names.NONCE: ""}, spec.name), "of an earlier version"
    for other in ({names.NONCE: "n2"}, {names.EXPERIMENT: "other"}, {names.TRIAL: "zzzzz"}):
        assert not names.is_ours({"metadata": {**meta, "labels": {**labels, **other}}}, labels, spec.name)
    of_nni = {"labels": {"app": "nni-kubernetes-trial", "expId": "abcd1234", "trialId": "abcde"}}
    assert not names.is_ours({"metadata": of_nni}, labels, spec.name)


def test_the_token_stands_in_a_secret_alone() -> None:
    template = pod_template(job(), role(), _PODS, {}, "the-secret")
    assert "s3cret" not in str(template)
    [token] = [one for one in template["spec"]["containers"][0]["env"] if one["name"] == protocol.ENV_TOKEN]
    assert token["valueFrom"] == {"secretKeyRef": {"name": "the-secret", "key": "token"}}


@pytest.mark.parametrize(
    ("own", "asked"),
    [
        ({}, False),
        ({"hostNetwork": True}, False),
        ({"automountServiceAccountToken": True}, True),
        ({"serviceAccountName": "mine"}, None),
        ({"serviceAccount": "mine"}, None),
    ],
)
def test_pod_gets_service_account_token_only_on_request(own: dict[str, object], asked: bool | None) -> None:
    pods = replace(_PODS, template={"spec": own}, service_account="of-a-barrier")
    template = pod_template(job(), role(), pods, {}, "s")
    assert template["spec"].get("automountServiceAccountToken") is asked


@pytest.mark.parametrize(
    ("command", "value"),
    [("echo $(hostname)", "echo $$(hostname)"), ("echo $(cat a)", "echo $(cat a)"), ("echo $HOME", "echo $HOME")],
)
def test_command_with_kubernetes_variables_is_unchanged(command: str, value: str) -> None:
    template = pod_template(job(), role(command=command), _PODS, {}, "s")
    env = {one["name"]: one.get("value") for one in template["spec"]["containers"][0]["env"]}
    assert env[protocol.ENV_COMMAND] == value


@pytest.mark.parametrize(("gpus", "hidden", "asked"), [(None, None, None), (0, "", None), (2, None, "2")])
def test_gpus_are_asked_for_hidden_or_left_alone(gpus: int | None, hidden: str | None, asked: str | None) -> None:
    [container] = pod_template(job(), role(gpus=gpus, resources={"cpu": "1"}), _PODS, {}, "s")["spec"]["containers"]
    env = {one["name"]: one.get("value") for one in container["env"]}
    assert env.get(protocol.ENV_GPUS) == hidden
    assert container["resources"]["limits"].get("nvidia.com/gpu") == asked
    assert container["resources"]["requests"] == container["resources"]["limits"]


def test_a_pod_template_of_the_user_is_merged_last_and_by_name() -> None:
    own = {
        "metadata": {"labels": {"team": "a"}},
        "spec": {
            "nodeSelector": {"gpu": "yes"},
            "containers": [{"env": [{"name": "EXTRA", "value": "1"}]}, {"name": "side", "image": "side"}],
            "volumes": [{"name": "data", "emptyDir": {}}],
        },
    }
    settings = PodSettings(platform="kubeflow", channel="push", runner_map="runner", template=own)
    template = pod_template(job(), role(), settings, {"ours": "1"}, "s")
    spec = template["spec"]
    assert template["metadata"]["labels"].items() >= {"ours": "1", "team": "a"}.items()
    assert [one["name"] for one in spec["containers"]] == ["c", "side"]
    assert spec["containers"][0]["image"] == "i" and spec["nodeSelector"] == {"gpu": "yes"}
    assert {"EXTRA", protocol.ENV_COMMAND} <= {one["name"] for one in spec["containers"][0]["env"]}
    assert [one["name"] for one in spec["volumes"]] == ["nni-vol", "nni-runner", "data"]
