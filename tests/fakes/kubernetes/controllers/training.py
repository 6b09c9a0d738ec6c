"""Common part of the controllers of TFJob and PyTorchJob: the training operator 1.7 and 1.8."""

from __future__ import annotations

import datetime
from typing import Any

from tests.fakes.kubernetes.controllers.loop import Controller, exit_codes, reference
from tests.fakes.kubernetes.defaults import now
from tests.fakes.kubernetes.kinds import PODS, SERVICES
from tests.fakes.kubernetes.patches import copied
from tests.fakes.kubernetes.store import Object

_PREFIX = "training.kubeflow.org"


class TrainingController(Controller):
    """A job is pods by role and index, and a list of conditions."""

    api_version = "kubeflow.org/v1"
    #: The member of `spec` with the roles.
    replicas_field = ""
    container_name = ""
    port_name = ""
    port = 0
    default_restart_policy = "Never"
    operator_name = ""

    def look(self, job: Object) -> None:
        status = copied(job.get("status") or {})
        name = job["metadata"]["name"]
        if not status.get("conditions"):
            self._condition(status, "Created", f"{self.kind_name}Created", f"{self.kind_name} {name} is created.")
            status["replicaStatuses"] = {role: self.empty_status(job, role) for role in self.roles(job)}
            self.verbs.event(
                job, f"{self.kind_name}Created", f"{self.kind_name} {name} is created.", source=self.operator_name
            )
        if self._is(status, "Succeeded") or self._is(status, "Failed"):
            self._after(job, status)
        elif (job["spec"].get("runPolicy") or {}).get("suspend"):
            self._suspend(job, status)
        else:
            self._reconcile(job, status)
        self._write(job, status)

    # differences of the kinds

    def environment(self, job: Object, role: str, index: int) -> list[dict[str, str]]:
        raise NotImplementedError

    def leader(self, job: Object) -> tuple[str, int]:
        """The replica that decides the job's success."""
        raise NotImplementedError

    def running_message(self, job: Object) -> str:
        raise NotImplementedError

    def succeeded_message(self, job: Object) -> str:
        raise NotImplementedError

    def failed_message(self, job: Object, count: int, role: str) -> str:
        raise NotImplementedError

    def empty_status(self, job: Object, role: str) -> Object:
        return {}

    def init_containers(self, job: Object, role: str) -> list[Object]:
        return []

    def succeeded(self, job: Object, pods: dict[tuple[str, int], Object]) -> bool:
        pod = pods.get(self.leader(job))
        return pod is not None and pod["status"].get("phase") == "Succeeded"

    # common part

    def roles(self, job: Object) -> dict[str, Object]:
        return dict(job["spec"][self.replicas_field])

    def pod_name(self, job: Object, role: str, index: int) -> str:
        return f"{job['metadata']['name']}-{role.lower()}-{index}"

    def addresses(self, job: Object) -> list[tuple[str, int]]:
        roles = self.roles(job)
        return [(role, index) for role in roles for index in range(self.count(roles[role]))]

    def count(self, replica: Object) -> int:
        given = replica.get("replicas")
        return 1 if given is None else int(given)

    def restart_policy(self, replica: Object) -> str:
        return str(replica.get("restartPolicy") or self.default_restart_policy)

    def by_address(self, job: Object) -> dict[tuple[str, int], Object]:
        roles = {role.lower(): role for role in self.roles(job)}
        found = {}
        for pod in self.pods(job):
            labels = pod["metadata"]["labels"]
            role = roles.get(labels[f"{_PREFIX}/replica-type"])
            is_ending = "deletionTimestamp" in pod["metadata"] and pod["status"].get("phase") != "Failed"
            if role is not None and not is_ending:
                found[role, int(labels[f"{_PREFIX}/replica-index"])] = pod
        return found

    def _reconcile(self, job: Object, status: Object) -> None:
        pods = self.by_address(job)
        self._drop_suspension(status)
        failed_for_good = [pod for (role, _), pod in pods.items() if self._is_final_failure(job, role, pod)]
        restarting = self._restart(job, status, pods)
        if self._past_limits(job, status, pods):
            return
        if not failed_for_good:
            self._create_missing(job, pods)
        self._count(job, status, pods)
        succeeded = self.succeeded(job, pods)
        if succeeded:
            self._finish(job, status, "Succeeded", self.succeeded_message(job))
        if failed_for_good:  # the operator adds this even to a job that has just succeeded
            self._finish(job, status, "Failed", self._failure(job, failed_for_good))
        elif succeeded:
            return
        elif restarting:
            told = f"{self.kind_name} {job['metadata']['name']} is restarting because {restarting} replica(s) failed."
            self._condition(status, "Restarting", f"{self.kind_name}Restarting", told)
        elif any(pod["status"].get("phase") == "Running" for pod in pods.values()) and self._leader_ran(job, pods):
            self._condition(status, "Running", f"{self.kind_name}Running", self.running_message(job))

    def _leader_ran(self, job: Object, pods: dict[tuple[str, int], Object]) -> bool:
        leader = pods.get(self.leader(job))
        return leader is not None and leader["status"].get("phase") == "Running"

    def _create_missing(self, job: Object, pods: dict[tuple[str, int], Object]) -> None:
        status_start = (job.get("status") or {}).get("startTime")
        for role, index in self.addresses(job):
            name = self.pod_name(job, role, index)
            there = self.verbs.find(PODS, job["metadata"]["namespace"], name)
            if (role, index) in pods or there is not None or self._waits_for_back_off(job, name):
                continue
            self._create(job, role, index)
        if status_start is None:
            deadline = (job["spec"].get("runPolicy") or {}).get("activeDeadlineSeconds")
            if deadline:
                self.later(job, deadline)

    def _waits_for_back_off(self, job: Object, name: str) -> bool:
        return False

    def _create(self, job: Object, role: str, index: int) -> None:
        replica = self.roles(job)[role]
        template = copied(replica["template"])
        metadata = template.get("metadata") or {}
        labels = {**(metadata.get("labels") or {}), **self._labels(job, role, index)}
        spec = template["spec"]
        policy = self.restart_policy(replica)
        if spec.get("restartPolicy"):
            told = "Restart policy in pod template overridden by restart policy in replica spec"
            self.verbs.event(job, self._overridden, told, "Warning", self.operator_name)
        spec["restartPolicy"] = "Never" if policy == "ExitCode" else policy
        for container in spec["containers"]:
            if container["name"] == self.container_name:
                container["env"] = [*(container.get("env") or []), *self.environment(job, role, index)]
                ports = container.get("ports") or []
                if all(port.get("name") != self.port_name for port in ports):
                    container["ports"] = [
                        *ports,
                        {"name": self.port_name, "containerPort": self.port, "protocol": "TCP"},
                    ]
        if extra := self.init_containers(job, role):
            spec["initContainers"] = [*(spec.get("initContainers") or []), *extra]
        name, namespace = self.pod_name(job, role, index), job["metadata"]["namespace"]
        annotations = {"annotations": metadata["annotations"]} if metadata.get("annotations") else {}
        own = {"name": name, "labels": labels, "ownerReferences": [reference(job)], **annotations}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": own, "spec": spec}
        self.verbs.create(PODS, namespace, pod)
        self.verbs.event(job, "SuccessfulCreatePod", f"Created pod: {name}", source=self.operator_name)
        self._serve(job, role, index, name)

    @property
    def _overridden(self) -> str:
        """Release 1.7 spells it differently."""
        is_old = self.cluster.settings.operator_version.startswith("v1.7")
        return "SettedPodTemplateRestartPolicy" if is_old else "SetPodTemplateRestartPolicy"

    def _serve(self, job: Object, role: str, index: int, name: str) -> None:
        namespace = job["metadata"]["namespace"]
        if self.verbs.find(SERVICES, namespace, name) is None:
            spec = {
                "clusterIP": "None",
                "selector": self._labels(job, role, index),
                "ports": [{"name": self.port_name, "port": self.port}],
            }
            service = {
                "apiVersion": "v1",
                "kind": "Service",
                "spec": spec,
                "metadata": {
                    "name": name,
                    "labels": self._labels(job, role, index),
                    "ownerReferences": [reference(job)],
                },
            }
            self.verbs.create(SERVICES, namespace, service)

    def _labels(self, job: Object, role: str, index: int) -> dict[str, str]:
        labels = {
            f"{_PREFIX}/job-name": job["metadata"]["name"],
            f"{_PREFIX}/operator-name": self.operator_name,
            f"{_PREFIX}/replica-index": str(index),
            f"{_PREFIX}/replica-type": role.lower(),
        }
        if (role, index) == self.leader(job) or role in ("Master", "Chief"):
            labels[f"{_PREFIX}/job-role"] = "master"
        return labels

    def _is_final_failure(self, job: Object, role: str, pod: Object) -> bool:
        if pod["status"].get("phase") != "Failed":
            return False
        return not self.is_restarting(job, role, pod)

    def is_restarting(self, job: Object, role: str, pod: Object) -> bool:
        """Whether a failed pod does not end the job."""
        return self._may_restart(self.roles(job)[role], pod)

    def _may_restart(self, replica: Object, pod: Object) -> bool:
        """Only the policy ExitCode creates a new pod; kubelet restarts keep the pod."""
        if self.restart_policy(replica) != "ExitCode":
            return False
        code = exit_codes(pod).get(self.container_name, 1 if pod["status"].get("reason") != "Evicted" else 137)
        return code >= 128

    def _restart(self, job: Object, status: Object, pods: dict[tuple[str, int], Object]) -> str:
        """Delete failed pods that must be recreated; returns the role of one of them."""
        found = ""
        for (role, index), pod in list(pods.items()):
            if pod["status"].get("phase") != "Failed" or not self.is_restarting(job, role, pod):
                continue
            found = role
            if self._may_restart(self.roles(job)[role], pod) and self._restarts(job, pods) < self._limit(job):
                self.cluster.note_restart(job["metadata"]["uid"])
                told = f"Pod: {job['metadata']['namespace']}.{pod['metadata']['name']} exited with code"
                code = next(iter(exit_codes(pod).values()), 0)
                self.verbs.event(job, "ExitedWithCode", f"{told} {code}", source=self.operator_name)
                self.verbs.delete(PODS, job["metadata"]["namespace"], pod["metadata"]["name"])
                del pods[role, index]
        return found

    def _limit(self, job: Object) -> float:
        limit = (job["spec"].get("runPolicy") or {}).get("backoffLimit")
        return float("inf") if limit is None else int(limit)

    def _restarts(self, job: Object, pods: dict[tuple[str, int], Object]) -> int:
        within = sum(
            each.get("restartCount", 0)
            for pod in pods.values()
            for each in pod["status"].get("containerStatuses") or []
        )
        return within + self.cluster.restarts(job["metadata"]["uid"])

    def _past_limits(self, job: Object, status: Object, pods: dict[tuple[str, int], Object]) -> bool:
        name, policy = job["metadata"]["name"], job["spec"].get("runPolicy") or {}
        failed = any(pod["status"].get("phase") == "Failed" for pod in pods.values())
        restarts = self._restarts(job, pods)
        limit = self._limit(job)
        if restarts > limit or (failed and restarts >= limit):
            told = f"{self.kind_name} {name} has failed because it has reached the specified backoff limit"
            self._count(job, status, pods)
            for pod in pods.values():  # regardless of cleanPodPolicy, and before the job is reported as failed
                self.verbs.delete(PODS, job["metadata"]["namespace"], pod["metadata"]["name"])
            self._finish(job, status, "Failed", told)
            return True
        deadline, start = policy.get("activeDeadlineSeconds"), status.get("startTime")
        if deadline and start and _age(start) >= deadline:
            told = f"{self.kind_name} {name} has failed because it was active longer than specified deadline"
            for pod in pods.values():
                self.verbs.delete(PODS, job["metadata"]["namespace"], pod["metadata"]["name"])
            self._finish(job, status, "Failed", told)
            return True
        return False

    def _failure(self, job: Object, failed: list[Object]) -> str:
        labels = failed[0]["metadata"]["labels"]
        role = next(role for role in self.roles(job) if role.lower() == labels[f"{_PREFIX}/replica-type"])
        same = sum(pod["metadata"]["labels"][f"{_PREFIX}/replica-type"] == role.lower() for pod in failed)
        return self.failed_message(job, same, role)

    def _count(self, job: Object, status: Object, pods: dict[tuple[str, int], Object]) -> None:
        counted = {role: self.empty_status(job, role) for role in self.roles(job)}
        words = {"Running": "active", "Succeeded": "succeeded", "Failed": "failed"}
        for (role, _), pod in pods.items():
            if word := words.get(pod["status"].get("phase", "")):
                counted[role][word] = counted[role].get(word, 0) + 1
        status["replicaStatuses"] = counted
        status.setdefault("startTime", now())

    def _finish(self, job: Object, status: Object, kind: str, message: str) -> None:
        status["completionTime"] = now()
        self._condition(status, kind, f"{self.kind_name}{kind}", message)
        event = "Normal" if kind == "Succeeded" else "Warning"
        self.verbs.event(job, f"{self.kind_name}{kind}", message, event, source=self.operator_name)

    def _after(self, job: Object, status: Object) -> None:
        """Clean up pods by the policy, and the job after its TTL."""
        policy = job["spec"].get("runPolicy") or {}
        clean = policy.get("cleanPodPolicy") or "None"
        for pod in self.pods(job):
            if clean == "All" or (clean == "Running" and pod["status"].get("phase") in ("Running", "Pending")):
                name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
                if "deletionTimestamp" not in pod["metadata"]:
                    self.verbs.delete(PODS, namespace, name)
                if self.verbs.find(SERVICES, namespace, name):
                    self.verbs.delete(SERVICES, namespace, name)
        if self._is(status, "Succeeded"):  # like the operator, count running pods as succeeded now
            for told in (status.get("replicaStatuses") or {}).values():
                if told.get("active"):
                    told["succeeded"] = told.get("succeeded", 0) + told.pop("active")
        ttl, done = policy.get("ttlSecondsAfterFinished"), status.get("completionTime")
        if ttl is not None and done:
            if _age(done) >= ttl and self.kind is not None:
                options = {"propagationPolicy": "Background"}
                self.verbs.delete(self.kind, job["metadata"]["namespace"], job["metadata"]["name"], options)
            else:
                self.later(job, max(ttl - _age(done), 0.05))

    def _suspend(self, job: Object, status: Object) -> None:
        for pod in self.pods(job):
            if "deletionTimestamp" not in pod["metadata"]:
                self.verbs.delete(PODS, pod["metadata"]["namespace"], pod["metadata"]["name"])
        status["replicaStatuses"] = {role: self.empty_status(job, role) for role in self.roles(job)}
        status.pop("startTime", None)
        told = f"{self.kind_name} {job['metadata']['name']} is suspended."
        self._condition(status, "Suspended", f"{self.kind_name}Suspended", told)

    def _drop_suspension(self, status: Object) -> None:
        for each in status["conditions"]:
            if each["type"] == "Suspended" and each["status"] == "True":
                each.update(status="False", lastTransitionTime=now(), lastUpdateTime=now())

    def _is(self, status: Object, kind: str) -> bool:
        return any(each["type"] == kind and each["status"] == "True" for each in status.get("conditions") or [])

    def _condition(self, status: Object, kind: str, reason: str, message: str) -> None:
        """Conditions accumulate; Running and Restarting replace each other, and both end with the job."""
        held: list[dict[str, Any]] = status.setdefault("conditions", [])
        if any(each["type"] == kind and each["status"] == "True" and each["reason"] == reason for each in held):
            return
        replaced = {"Running": {"Restarting"}, "Restarting": {"Running"}}.get(kind, set())
        held[:] = [each for each in held if each["type"] not in replaced and each["type"] != kind]
        if kind in ("Succeeded", "Failed", "Suspended"):
            for each in held:
                if each["type"] == "Running":
                    each["status"] = "False"
        held.append(
            {
                "type": kind,
                "status": "True",
                "reason": reason,
                "message": message,
                "lastTransitionTime": now(),
                "lastUpdateTime": now(),
            }
        )

    def _write(self, job: Object, status: Object) -> None:
        if status != (job.get("status") or {}) and self.kind is not None:
            self.verbs.set_status(self.kind, job["metadata"]["namespace"], job["metadata"]["name"], status)


def _age(moment: str) -> float:
    then = datetime.datetime.fromisoformat(moment.replace("Z", "+00:00"))
    return (datetime.datetime.now(datetime.UTC) - then).total_seconds()
