"""Defaults that the server fills in."""

from __future__ import annotations

import base64
import datetime
import secrets
from typing import Any

from tests.fakes.kubernetes.jobs import kind as jobs
from tests.fakes.kubernetes.kinds import JOBS, Kind
from tests.fakes.kubernetes.store import Object


def now(later_s: float = 0) -> str:
    time = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=later_s)
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


_LONGEST_NAME, _SUFFIX = 63, 5


def suffix(length: int = _SUFFIX) -> str:
    """Random characters of a generated name."""
    return "".join(secrets.choice("bcdfghjklmnpqrstvwxz2456789") for _ in range(length))


def generated_name(base: str) -> str:
    """Complete the first 58 characters of a `generateName`."""
    return base[: _LONGEST_NAME - _SUFFIX] + suffix()


def filled(kind: Kind, obj: Object) -> Object:
    """Defaults of a new object of a built-in kind."""
    if kind.key == "pods":
        return {**obj, "spec": _pod(obj["spec"]), "status": {"phase": "Pending", "qosClass": _quality(obj["spec"])}}
    if kind.key == JOBS.key:
        pod_spec = ((obj.get("spec") or {}).get("template") or {}).get("spec") or {}
        return jobs.filled(obj, _pod_spec(pod_spec))
    if kind.key == "secrets":
        return _secret(obj)
    if kind.key == "persistentvolumeclaims":
        spec = {"volumeMode": "Filesystem", **obj["spec"]}
        return {**obj, "spec": spec, "status": {"phase": "Pending"}}
    if kind.key == "namespaces":
        labels = {**(obj["metadata"].get("labels") or {}), "kubernetes.io/metadata.name": obj["metadata"]["name"]}
        metadata = {**obj["metadata"], "labels": labels}
        return {**obj, "metadata": metadata, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}
    return obj


def _secret(obj: Object) -> Object:
    """Convert `stringData`, which is write-only."""
    written = {name: base64.b64encode(v.encode()).decode() for name, v in (obj.get("stringData") or {}).items()}
    rest = {name: value for name, value in obj.items() if name != "stringData"}
    return {"type": "Opaque", **rest, "data": {**(obj.get("data") or {}), **written}}


def _pod(spec: dict[str, Any]) -> dict[str, Any]:
    account = spec.get("serviceAccountName") or spec.get("serviceAccount") or "default"
    spec = {
        "enableServiceLinks": True,
        "priority": 0,
        "preemptionPolicy": "PreemptLowerPriority",
        **_pod_spec(spec),
        "serviceAccountName": account,
        "serviceAccount": account,
    }
    volume = f"kube-api-access-{suffix()}"
    mounted = spec.get("automountServiceAccountToken") is not False
    for name in ("initContainers", "containers"):
        if name in spec:
            spec[name] = [_with_account(each, volume if mounted else None) for each in spec[name]]
    if mounted:
        spec["volumes"] = [*(spec.get("volumes") or []), _account_volume(volume)]
    unreachable = ("not-ready", "unreachable")
    spec.setdefault(
        "tolerations",
        [
            {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            for key in unreachable
        ],
    )
    return spec


ACCOUNT_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"


def _pod_spec(spec: dict[str, Any]) -> dict[str, Any]:
    """Defaults of a pod and of a pod template."""
    filled_in = {
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "securityContext": {},
        "schedulerName": "default-scheduler",
        **spec,
    }
    for name in ("initContainers", "containers"):
        if name in spec:
            filled_in[name] = [_container(each) for each in spec[name] or ()]
    return filled_in


def _container(container: Object) -> Object:
    image = container.get("image", "")
    tag = image.rsplit("/", 1)[-1].partition(":")[2]
    filled_in = {
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "Always" if tag in ("", "latest") else "IfNotPresent",
        **container,
        "resources": _as_texts(dict(container.get("resources") or {})),
    }
    if "ports" in container:
        filled_in["ports"] = [{"protocol": "TCP", **port} for port in container["ports"] or []]
    return filled_in


def _with_account(container: Object, account_volume: str | None) -> Object:
    """A container of a pod: its limits are also requests, and it mounts the token of its account."""
    resources = dict(container["resources"])
    if resources.get("limits"):
        resources["requests"] = {**resources["limits"], **(resources.get("requests") or {})}
    filled_in = {**container, "resources": resources}
    mounts = container.get("volumeMounts") or []
    if account_volume and all(mount["mountPath"] != ACCOUNT_PATH for mount in mounts):
        mounts = [*mounts, {"name": account_volume, "readOnly": True, "mountPath": ACCOUNT_PATH}]
    return {**filled_in, **({"volumeMounts": mounts} if mounts else {})}


def _as_texts(resources: dict[str, Any]) -> dict[str, Any]:
    return {
        part: {name: str(value) for name, value in (each or {}).items()} if part != "claims" else each
        for part, each in resources.items()
    }


def _account_volume(name: str) -> Object:
    sources = [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {
            "downwardAPI": {
                "items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]
            }
        },
    ]
    return {"name": name, "projected": {"defaultMode": 420, "sources": sources}}


def _quality(spec: dict[str, Any]) -> str:
    resources = [each.get("resources") or {} for each in spec.get("containers") or []]
    if not any(each.get("limits") or each.get("requests") for each in resources):
        return "BestEffort"
    whole = all(
        {"cpu", "memory"} <= set(each.get("limits") or {})
        and all(str(each["limits"][name]) == str(v) for name, v in (each.get("requests") or {}).items())
        for each in resources
    )
    return "Guaranteed" if whole else "Burstable"
