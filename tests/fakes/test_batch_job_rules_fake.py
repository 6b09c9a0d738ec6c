"""Defaults, validation and changes of the fake's Jobs, and the fields that older servers lack."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kubernetes_asyncio import client

from tests.fakes.batch_jobs import FAIL_DISRUPTED, FOREVER, change, create, exit_rule, job, read, true
from tests.fakes.kubernetes.jobs import kind
from tests.fakes.kubernetes.testing import NAMESPACE, TestCluster

pytestmark = [pytest.mark.unit, pytest.mark.cluster(controllers=False)]

_POLICY = "spec.podFailurePolicy.rules[0]"
_NOT_NEGATIVE = "must be greater than or equal to 0"
_EITHER = 'supported values: "Failed", "TerminatingOrFailed"'


def causes(error: client.ApiException) -> list[tuple[str, str, str]]:
    assert error.status == 422
    found = json.loads(error.body)["details"]["causes"]
    return [(one["field"], one["reason"], one["message"]) for one in found]


def with_rules(*rules: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {"podFailurePolicy": {"rules": list(rules)}, **spec}


def codes(**requirement: Any) -> dict[str, Any]:
    return with_rules({"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1], **requirement}})


_NAMES = "must be one of the container or initContainer names in the pod template"
_TWO = {**exit_rule("FailJob", 1), "onPodConditions": FAIL_DISRUPTED["rules"][0]["onPodConditions"]}
REFUSED: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "limit": (
        {"backoffLimit": -1},
        "spec.backoffLimit",
        "FieldValueInvalid",
        f"Invalid value: -1: {_NOT_NEGATIVE}",
    ),
    "always": (
        {"policy": "Always"},
        "spec.template.spec.restartPolicy",
        "FieldValueRequired",
        'Required value: valid values: "OnFailure", "Never"',
    ),
    "on failure": (
        with_rules(exit_rule("FailJob", 1), policy="OnFailure"),
        "spec.template.spec.restartPolicy",
        "FieldValueInvalid",
        'Invalid value: "OnFailure": only "Never" is supported when podFailurePolicy is specified',
    ),
    "replacement": (
        {"podReplacementPolicy": "Never"},
        "spec.podReplacementPolicy",
        "FieldValueNotSupported",
        f'Unsupported value: "Never": {_EITHER}',
    ),
    "replacement with a policy": (
        with_rules(exit_rule("FailJob", 1), podReplacementPolicy="TerminatingOrFailed"),
        "spec.podReplacementPolicy",
        "FieldValueNotSupported",
        'Unsupported value: "TerminatingOrFailed": supported values: "Failed"',
    ),
    "no action": (
        with_rules({"onExitCodes": {"operator": "In", "values": [1]}}),
        f"{_POLICY}.action",
        "FieldValueRequired",
        'Required value: valid values: ["Count" "FailIndex" "FailJob" "Ignore"]',
    ),
    "index": (
        with_rules(exit_rule("FailIndex", 1)),
        f"{_POLICY}.action",
        "FieldValueInvalid",
        'Invalid value: "FailIndex": requires the backoffLimitPerIndex to be set',
    ),
    "both": (
        with_rules(_TWO),
        _POLICY,
        "FieldValueInvalid",
        "Invalid value: specifying both OnExitCodes and OnPodConditions is not supported",
    ),
    "neither": (
        with_rules({"action": "FailJob"}),
        _POLICY,
        "FieldValueInvalid",
        "Invalid value: specifying one of OnExitCodes and OnPodConditions is required",
    ),
    "container": (
        codes(containerName="d"),
        f"{_POLICY}.onExitCodes.containerName",
        "FieldValueInvalid",
        f'Invalid value: "d": {_NAMES}',
    ),
    "no codes": (
        codes(values=[]),
        f"{_POLICY}.onExitCodes.values",
        "FieldValueInvalid",
        "Invalid value: []: at least one value is required",
    ),
    "code 0": (
        codes(values=[0]),
        f"{_POLICY}.onExitCodes.values[0]",
        "FieldValueInvalid",
        "Invalid value: 0: must not be 0 for the In operator",
    ),
    "unordered": (
        codes(values=[2, 1]),
        f"{_POLICY}.onExitCodes.values",
        "FieldValueInvalid",
        "Invalid value: [2,1]: must be ordered",
    ),
    "manager": (
        {"managedBy": "kueue"},
        "spec.managedBy",
        "FieldValueInvalid",
        'Invalid value: "kueue": must be a domain-prefixed path (such as "acme.io/foo")',
    ),
    "per index": (
        {"backoffLimitPerIndex": 1},
        "spec.backoffLimitPerIndex",
        "FieldValueInvalid",
        "Invalid value: 1: requires indexed completion mode",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_invalid_job_is_refused(api: client.ApiClient, name: str) -> None:
    spec, *cause = REFUSED[name]
    with pytest.raises(client.ApiException) as caught:
        await create(api, FOREVER, **spec)
    assert tuple(cause) in causes(caught.value)


async def test_long_name_does_not_fit_into_a_label(api: client.ApiClient) -> None:
    body = job(FOREVER)
    body["metadata"]["name"] = "j" * 64
    with pytest.raises(client.ApiException) as caught:
        await client.BatchV1Api(api).create_namespaced_job(NAMESPACE, body)
    assert "spec.template.labels" in {field for field, _, _ in causes(caught.value)}


async def test_indexed_job_is_refused_by_the_fake(world: TestCluster, api: client.ApiClient) -> None:
    world.needs_fake("real controllers run Indexed Jobs")
    with pytest.raises(client.ApiException) as caught:
        await create(api, FOREVER, completionMode="Indexed", completions=2)
    assert caught.value.status == 501


async def test_defaults_are_filled_in(api: client.ApiClient) -> None:
    body = job(FOREVER, podFailurePolicy={"rules": [{"action": "Ignore", "onPodConditions": [{"type": "Odd"}]}]})
    del body["spec"]["backoffLimit"]
    body["spec"]["template"]["metadata"] = {"labels": {"team": "a"}}
    made = await client.BatchV1Api(api).create_namespaced_job(NAMESPACE, body)
    spec, uid = made.spec, made.metadata.uid
    assert (spec.completions, spec.parallelism, spec.backoff_limit, spec.suspend) == (1, 1, 6, False)
    assert (spec.completion_mode, spec.manual_selector, spec.pod_replacement_policy) == ("NonIndexed", False, "Failed")
    assert spec.selector.match_labels == {"batch.kubernetes.io/controller-uid": uid}
    assert spec.pod_failure_policy.rules[0].on_pod_conditions[0].status == "True"
    assert made.metadata.labels["team"] == "a" and spec.template.metadata.labels["team"] == "a"
    assert (spec.template.spec.dns_policy, spec.template.spec.scheduler_name) == ("ClusterFirst", "default-scheduler")
    assert made.metadata.generation == 1 and made.status.active is None


async def test_counts_have_defaults_together(api: client.ApiClient) -> None:
    made = await create(api, FOREVER, parallelism=2)
    assert (made.spec.completions, made.spec.parallelism) == (None, 2)
    assert made.spec.pod_replacement_policy == "TerminatingOrFailed"


async def test_own_selector_needs_matching_labels(api: client.ApiClient) -> None:
    with pytest.raises(client.ApiException) as caught:
        await create(api, FOREVER, manualSelector=True, selector={"matchLabels": {"a": "b"}})
    [(field, _, message)] = causes(caught.value)
    assert field == "spec.template.metadata.labels" and "`selector` does not match template `labels`" in message


async def test_changed_spec_raises_the_generation(api: client.ApiClient) -> None:
    await create(api, FOREVER)
    await change(api, suspend=True, activeDeadlineSeconds=5, backoffLimit=1, ttlSecondsAfterFinished=1, parallelism=2)
    assert (await read(api)).metadata.generation == 2
    await client.BatchV1Api(api).patch_namespaced_job("j", NAMESPACE, {"metadata": {"labels": {"a": "b"}}})
    assert (await read(api)).metadata.generation == 2


@pytest.mark.parametrize("field", ["completions", "podFailurePolicy", "managedBy"])
async def test_fixed_field_is_not_changed(api: client.ApiClient, field: str) -> None:
    value = {"completions": 2, "podFailurePolicy": FAIL_DISRUPTED, "managedBy": "a.io/b"}[field]
    await create(api, FOREVER, podReplacementPolicy="Failed")
    with pytest.raises(client.ApiException) as caught:
        await change(api, **{field: value})
    [(place, reason, message)] = causes(caught.value)
    assert (place, reason) == (f"spec.{field}", "FieldValueInvalid")
    assert message.startswith("Invalid value: ") and message.endswith(": field is immutable")


PLACE = {"template": {"spec": {"nodeSelector": {"zone": "a"}}}}
COMMAND = {"template": {"spec": {"containers": [{"name": "c", "command": ["true"]}]}}}


async def test_suspended_job_that_never_ran_gets_another_place(api: client.ApiClient) -> None:
    await create(api, FOREVER, suspend=True)
    found = await change(api, **PLACE)
    assert found.spec.template.spec.node_selector == {"zone": "a"}
    with pytest.raises(client.ApiException) as caught:
        await change(api, **COMMAND)
    assert causes(caught.value)[0][0].startswith("spec.template")


@pytest.mark.cluster(controllers=True)
async def test_running_job_keeps_its_place(world: TestCluster, api: client.ApiClient) -> None:
    world.needs_fake("releases from 1.36 let a suspended job change its place again")
    await create(api, FOREVER)
    with pytest.raises(client.ApiException):
        await change(api, **PLACE)
    await change(api, suspend=True)
    await true(api, "Suspended")
    with pytest.raises(client.ApiException) as caught:
        await change(api, **PLACE)
    assert [field for field, _, _ in causes(caught.value)] == ["spec.template"], "it has a start time"


async def test_pod_name_is_cut_for_its_suffix(api: client.ApiClient) -> None:
    pod = {"metadata": {"generateName": "p" * 60 + "-"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    made = await client.CoreV1Api(api).create_namespaced_pod(NAMESPACE, pod)
    assert len(made.metadata.name) == 63


@pytest.mark.cluster(controllers=False, minor_version=28)
async def test_disabled_field_is_dropped_without_a_warning(world: TestCluster, api: client.ApiClient) -> None:
    """A server knows a field, and describes it, before its feature gate is on."""
    world.needs_fake("a real cluster has one release")
    body = job(FOREVER, podReplacementPolicy="Failed", managedBy="a.io/b")
    answer = await client.BatchV1Api(api).create_namespaced_job_with_http_info(NAMESPACE, body)
    assert answer[0].spec.pod_replacement_policy is None and answer[0].spec.managed_by is None
    assert answer[2]["Warning"] == '299 - "unknown field \\"spec.managedBy\\""'
    properties = kind.description(28)["components"]["schemas"]["io.k8s.api.batch.v1.JobSpec"]["properties"]
    assert "podReplacementPolicy" in properties and "managedBy" not in properties
