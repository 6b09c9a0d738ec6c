"""Names of kinds and their API paths, and the names and labels of our objects."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass

from nni_manager.domain.job import JobSpec
from nni_manager.kubernetes.api.client import Object


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind of objects, in one version of the API. Core kinds have no group."""

    group: str
    version: str
    plural: str
    kind: str

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str, name: str = "") -> str:
        """The path of a resource in the API: of all objects in the namespace, or of the named one."""
        start = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        path = f"{start}/namespaces/{namespace}/{self.plural}"
        return f"{path}/{name}" if name else path


PODS = Resource("", "v1", "pods", "Pod")
EVENTS = Resource("", "v1", "events", "Event")
SECRETS = Resource("", "v1", "secrets", "Secret")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
#: The group of Kueue's kinds, and the label of a Workload with the uid of its job.
KUEUE = "kueue.x-k8s.io"
WORKLOAD_JOB = f"{KUEUE}/job-uid"
CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")


#: Labels. NNI's own are `app`, `expId` and `trialId`; its objects are not ours.
EXPERIMENT = "nni-manager/experiment"
SERVICE = "nni-manager/service"
JOB = "nni-manager/job"
TRIAL = "nni-manager/trial"
NONCE = "nni-manager/nonce"
#: The identity of the manager that created it. Not used as a selector.
MANAGER = "nni-manager/manager"
#: The label of pods of the reporting role; the first of them reports.
REPORTS = "nni-manager/reports"
#: Annotation: the documented name ``nni_exp_…_trial_…``, which is not valid for objects.
DOCUMENTED_NAME = "nni-manager/job-name"

#: Pods are named ``{job}-{role}-{index}``, with at most 63 characters.
_MOST = 63 - len("-worker-0000")
_HASH = 8


def dashed(spec: JobSpec) -> str:
    """The name of a job's object, valid by RFC 1035."""
    attempt = f"-{spec.attempt}" if spec.attempt > 1 else ""
    return _legal(spec, f"nni-exp-{spec.experiment_id}-trial-{spec.trial_id}{attempt}", "-", _MOST)


def alphanumeric(spec: JobSpec, longest_role: int) -> str:
    """The name of a job's object, valid for FrameworkController: ``^[a-z0-9]{1,63}$``.

    `longest_role`: length of its longest role name.
    """
    attempt = f"x{spec.attempt}" if spec.attempt > 1 else ""
    most = 63 - len("--0000") - longest_role
    return _legal(spec, f"nniexp{spec.experiment_id}trial{spec.trial_id}{attempt}", "", most)


def _legal(spec: JobSpec, wanted: str, separator: str, most: int) -> str:
    """The valid form of a name; if that loses characters, a hash keeps names distinct."""
    legal = re.sub(r"[^a-z0-9]+", separator, wanted.lower())
    if legal == wanted and len(legal) <= most:
        return legal
    digest = hashlib.sha256(spec.name.encode()).hexdigest()[:_HASH]
    return f"{legal[: most - _HASH - len(separator)].rstrip('-')}{separator}{digest}"


def label(text: str) -> str:
    """A text as a label's value; different texts give different values."""
    if re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", text):
        return text
    legal = re.sub(r"[^A-Za-z0-9_.-]", "-", text)[:50].strip("_.-")
    return f"{legal}{'-' if legal else ''}{hashlib.sha256(text.encode()).hexdigest()[:_HASH]}"


def service_labels(experiment_id: str, service: str) -> dict[str, str]:
    """The labels of everything that belongs to one training service of one experiment."""
    return {EXPERIMENT: label(experiment_id), SERVICE: label(service)}


def job_labels(spec: JobSpec, service: str, name: str, manager: str) -> dict[str, str]:
    """The labels of a job and of its pods. `manager`: its identity."""
    nonce = {NONCE: label(spec.nonce)} if spec.nonce else {}
    return {
        **service_labels(spec.experiment_id, service),
        JOB: name,
        TRIAL: label(spec.trial_id),
        **nonce,
        MANAGER: label(manager),
    }


def selector(labels: Mapping[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in labels.items())


def is_ours(found: Object, labels: Mapping[str, str], job_name: str) -> bool:
    """Whether an object belongs to this job; nonces are compared only if both have one."""
    meta = found["metadata"]
    told, annotations = meta.get("labels") or {}, meta.get("annotations") or {}
    same = (EXPERIMENT, SERVICE, JOB, TRIAL)
    nonces = {labels.get(NONCE, ""), told.get(NONCE, "")} - {""}
    return (
        all(told.get(name) == labels[name] for name in same)
        and annotations.get(DOCUMENTED_NAME) == job_name
        and len(nonces) <= 1
    )
