"""Validation of Jobs beyond their schema, with the server's messages."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

from tests.fakes.kubernetes import refusals
from tests.fakes.kubernetes.patches import copied
from tests.fakes.kubernetes.schemas import Cause
from tests.fakes.kubernetes.store import Object

_ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")
_OPERATORS = ("In", "NotIn")
_STATUSES = ("False", "True", "Unknown")
_MOST_RULES, _MOST_PATTERNS, _MOST_CODES = 20, 20, 255
_MOST_OF_MANAGER = 63
_PREFIX = "batch.kubernetes.io"
_NOT_NEGATIVE = (
    "parallelism",
    "completions",
    "activeDeadlineSeconds",
    "backoffLimit",
    "ttlSecondsAfterFinished",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
)
_INDEXED_ONLY = ("backoffLimitPerIndex", "maxFailedIndexes", "successPolicy")
_FIXED = (
    "completions",
    "selector",
    "completionMode",
    "podFailurePolicy",
    "backoffLimitPerIndex",
    "managedBy",
    "successPolicy",
)
_DOMAIN_PATH = re.compile(r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9/._~!$&'()*+,;=:@%-]+$")
_LABEL_VALUE = re.compile(r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$")


def faults(job: Object) -> list[Cause]:
    """Rules for a Job with its defaults; the pod spec has its own. Refuses Indexed Jobs, which no controller runs."""
    spec = job["spec"]
    if spec["completionMode"] == "Indexed":
        raise refusals.Refused(501, "NotImplemented", "this fake has no controller of Indexed Jobs")
    return [*_own_labels(job), *_counts(spec), *_policies(spec), *_restart_policy(spec), *_selector(spec)]


def _own_labels(job: Object) -> Iterator[Cause]:
    """Labels that the server generates must not be changed."""
    meta, labels = job["metadata"], (job["spec"]["template"].get("metadata") or {}).get("labels") or {}
    for value in labels.values():
        if len(value) > 63:
            yield _invalid("spec.template.labels", value, "must be no more than 63 characters")
        elif not _LABEL_VALUE.match(value):
            told = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.'"
            yield _invalid("spec.template.labels", value, told)
    if job["spec"].get("manualSelector"):
        return
    own = {"controller-uid": meta["uid"], "job-name": meta["name"]}
    for name, value in {**own, **{f"{_PREFIX}/{name}": value for name, value in own.items()}}.items():
        path = f"spec.template.metadata.labels[{name}]"
        if name not in labels:
            yield _required(path, f"must be '{value}'")
        if labels.get(name) != value:
            yield _invalid(path, labels, f"must be '{value}'")


def _counts(spec: Object) -> Iterator[Cause]:
    for name in _NOT_NEGATIVE:
        if spec.get(name, 0) < 0:
            yield _invalid(f"spec.{name}", spec[name], "must be greater than or equal to 0")
    if "maxFailedIndexes" in spec and "backoffLimitPerIndex" not in spec:
        yield _required("spec.backoffLimitPerIndex", "when maxFailedIndexes is specified")
    if (manager := spec.get("managedBy")) is not None:
        if not _DOMAIN_PATH.match(manager):
            yield _invalid("spec.managedBy", manager, 'must be a domain-prefixed path (such as "acme.io/foo")')
        if len(manager) > _MOST_OF_MANAGER:
            yield "spec.managedBy", "FieldValueTooLong", f"Too long: may not be more than {_MOST_OF_MANAGER} bytes"
    if spec["completionMode"] != "NonIndexed":
        yield _unsupported("spec.completionMode", spec["completionMode"], ("NonIndexed", "Indexed"))
    for name in _INDEXED_ONLY:
        if name in spec:
            yield _invalid(f"spec.{name}", spec[name], "requires indexed completion mode")


def _policies(spec: Object) -> Iterator[Cause]:
    policy = spec.get("podFailurePolicy")
    if policy is not None:
        rules, path = policy.get("rules") or [], "spec.podFailurePolicy.rules"
        if len(rules) > _MOST_RULES:
            yield _too_many(path, len(rules), _MOST_RULES)
        pod = spec["template"]["spec"]
        names = {one["name"] for part in ("containers", "initContainers") for one in pod.get(part) or ()}
        for at, rule in enumerate(rules):
            yield from _rule(rule, f"{path}[{at}]", names, "backoffLimitPerIndex" in spec)
    replaced, known = spec.get("podReplacementPolicy"), ("Failed", "TerminatingOrFailed")
    supported = known[:1] if policy is not None else known
    if replaced is not None and replaced not in supported:
        yield _unsupported("spec.podReplacementPolicy", replaced, supported)


def _rule(rule: Object, path: str, containers: set[str], has_index_limit: bool) -> Iterator[Cause]:
    action, codes, patterns = rule.get("action"), rule.get("onExitCodes"), rule.get("onPodConditions")
    if not action:
        yield _required(f"{path}.action", f"valid values: {_listed(_ACTIONS)}")
    elif action == "FailIndex" and not has_index_limit:
        yield _invalid(f"{path}.action", action, "requires the backoffLimitPerIndex to be set")
    elif action not in _ACTIONS:
        yield _unsupported(f"{path}.action", action, _ACTIONS)
    if codes is not None:
        yield from _exit_codes(codes, f"{path}.onExitCodes", containers)
    if patterns:
        yield from _patterns(patterns, f"{path}.onPodConditions")
    if codes is not None and patterns:
        told = "specifying both OnExitCodes and OnPodConditions is not supported"
        yield path, "FieldValueInvalid", f"Invalid value: {told}"
    if codes is None and not patterns:
        told = "specifying one of OnExitCodes and OnPodConditions is required"
        yield path, "FieldValueInvalid", f"Invalid value: {told}"


def _patterns(patterns: list[Object], path: str) -> Iterator[Cause]:
    if len(patterns) > _MOST_PATTERNS:
        yield _too_many(path, len(patterns), _MOST_PATTERNS)
    for at, pattern in enumerate(patterns):
        if not pattern.get("type"):
            yield _invalid(f"{path}[{at}].type", "", "name part must be non-empty")
        if pattern["status"] not in _STATUSES:
            yield _unsupported(f"{path}[{at}].status", pattern["status"], _STATUSES)


def _exit_codes(codes: Object, path: str, containers: set[str]) -> Iterator[Cause]:
    operator, name, values = codes.get("operator"), codes.get("containerName"), codes.get("values") or []
    if not operator:
        yield _required(f"{path}.operator", f"valid values: {_listed(_OPERATORS)}")
    elif operator not in _OPERATORS:
        yield _unsupported(f"{path}.operator", operator, _OPERATORS)
    if name is not None and name not in containers:
        told = "must be one of the container or initContainer names in the pod template"
        yield _invalid(f"{path}.containerName", name, told)
    if not values:
        yield _invalid(f"{path}.values", values, "at least one value is required")
    elif len(values) > _MOST_CODES:
        yield _too_many(f"{path}.values", len(values), _MOST_CODES)
    for at, value in enumerate(values):
        if operator == "In" and value == 0:
            yield _invalid(f"{path}.values[{at}]", value, "must not be 0 for the In operator")
        if value in values[:at]:
            yield f"{path}.values[{at}]", "FieldValueDuplicate", f"Duplicate value: {value}"
    if any(one > other for one, other in itertools.pairwise(values)):
        yield _invalid(f"{path}.values", values, "must be ordered")


def _restart_policy(spec: Object) -> Iterator[Cause]:
    policy, path = spec["template"]["spec"].get("restartPolicy", "Always"), "spec.template.spec.restartPolicy"
    if policy == "Always":
        yield _required(path, 'valid values: "OnFailure", "Never"')
    elif policy not in ("OnFailure", "Never"):
        yield _unsupported(path, policy, ("OnFailure", "Never"))
    elif "podFailurePolicy" in spec and policy != "Never":
        yield _invalid(path, policy, 'only "Never" is supported when podFailurePolicy is specified')


def _selector(spec: Object) -> Iterator[Cause]:
    if not spec.get("selector"):
        yield _required("spec.selector")
        return
    labels = (spec["template"].get("metadata") or {}).get("labels") or {}
    if any(labels.get(name) != value for name, value in (spec["selector"].get("matchLabels") or {}).items()):
        yield _invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")


def changes(old: Object, new: Object) -> list[Cause]:
    """Rules for a changed Job: what must not change. One that is suspended, and never ran, may get another place."""
    was, spec = old["spec"], new["spec"]
    wrong = [
        _invalid(f"spec.{name}", spec.get(name), "field is immutable")
        for name in _FIXED
        if was.get(name) != spec.get(name)
    ]
    before, after = was["template"], spec["template"]
    if was.get("suspend") and not (old.get("status") or {}).get("startTime"):
        before, after = _without_place(before), _without_place(after)
    if before != after:
        wrong.append(_invalid("spec.template", spec["template"], "field is immutable"))
    return wrong


def _without_place(template: Object) -> Object:
    """A pod template without labels, annotations and what says where its pods run."""
    found: Object = copied(template)
    for name in ("labels", "annotations"):
        (found.get("metadata") or {}).pop(name, None)
    for name in ("nodeSelector", "tolerations", "schedulingGates"):
        found["spec"].pop(name, None)
    affinity = found["spec"].pop("affinity", None) or {}
    affinity.pop("nodeAffinity", None)
    found["spec"].update({"affinity": affinity} if affinity else {})
    return found


def _invalid(path: str, value: Any, told: str) -> Cause:
    return path, "FieldValueInvalid", f"Invalid value: {json.dumps(value, separators=(',', ':'))}: {told}"


def _required(path: str, told: str = "") -> Cause:
    return path, "FieldValueRequired", f"Required value: {told}" if told else "Required value"


def _unsupported(path: str, value: str, supported: tuple[str, ...]) -> Cause:
    quoted = ", ".join(map(json.dumps, supported))
    return path, "FieldValueNotSupported", f"Unsupported value: {json.dumps(value)}: supported values: {quoted}"


def _too_many(path: str, count: int, most: int) -> Cause:
    return path, "FieldValueTooMany", f"Too many: {count}: must have at most {most} items"


def _listed(values: tuple[str, ...]) -> str:
    return f"[{' '.join(map(json.dumps, values))}]"
