"""The controller of Framework: FrameworkController 1.0.1.

Every step is written before the next one, so that a watch sees the same events as with the real one.
"""

from __future__ import annotations

import uuid
from typing import Any

from tests.fakes.kubernetes import refusals
from tests.fakes.kubernetes.controllers import completions, framework_pods
from tests.fakes.kubernetes.controllers.loop import Controller, reference
from tests.fakes.kubernetes.defaults import now
from tests.fakes.kubernetes.kinds import CONFIG_MAPS, PODS
from tests.fakes.kubernetes.patches import copied
from tests.fakes.kubernetes.store import Object


class FrameworkController(Controller):
    """Tasks in roles, each with a pod; attempts of tasks and of the whole."""

    api_version, kind_name = "frameworkcontroller.microsoft.com/v1", "Framework"

    def owner(self, obj: Object) -> str | None:
        """Pods are owned by the attempt's config map, and have labels for framework, role and task."""
        labels = obj["metadata"].get("labels") or {}
        return labels.get("FC_FRAMEWORK_NAME") or super().owner(obj)

    def look(self, job: Object) -> None:
        status = copied(job.get("status"))
        if not status:
            return self._begin(job)
        step = {
            "AttemptCreationPending": self._create,
            "AttemptCreationRequested": self._prepare,
            "AttemptPreparing": self._run,
            "AttemptRunning": self._run,
            "AttemptDeletionPending": self._request_deletion,
            "AttemptDeletionRequested": self._await_deletion,
            "AttemptDeleting": self._await_deletion,
            "AttemptCompleted": self._conclude,
        }.get(status["state"])
        if step is not None:
            step(job, status)
            self._write(job, status)

    def _write(self, job: Object, status: Object, spec: Object | None = None) -> None:
        assert self.kind is not None
        if status != job.get("status") or spec is not None:
            changed = {**job, "status": status, "spec": spec or job["spec"]}
            self.verbs.update(self.kind, job["metadata"]["namespace"], job["metadata"]["name"], changed)

    def _begin(self, job: Object) -> None:
        """The first write fills in defaults of the spec."""
        spec = copied(job["spec"])
        spec.setdefault("description", "")
        spec.setdefault("retryPolicy", {"fancyRetryPolicy": False, "maxRetryCount": 0})
        for role in spec.get("taskRoles") or []:
            role["task"].setdefault("podGracefulDeletionTimeoutSec", None)
            role["task"].setdefault("retryPolicy", {"fancyRetryPolicy": False, "maxRetryCount": 0})
            role.setdefault("frameworkAttemptCompletionPolicy", {"minFailedTaskCount": 1, "minSucceededTaskCount": -1})
        status = {
            "startTime": now(),
            "runTime": None,
            "completionTime": None,
            "state": "AttemptCreationPending",
            "transitionTime": now(),
            "retryPolicyStatus": _no_retries(),
            "attemptStatus": _attempt({**job, "spec": spec}, 0),
        }
        self._write(job, status, spec)

    def _create(self, job: Object, status: Object) -> None:
        if job["spec"]["executionType"] == "Stop":
            return self._complete(job, status, completions.stopped())
        if job["spec"]["executionType"] == "Create":
            return
        name, namespace = f"{job['metadata']['name']}-attempt", job["metadata"]["namespace"]
        labels = {"FC_FRAMEWORK_NAME": job["metadata"]["name"]}
        config_map = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "labels": labels, "ownerReferences": [reference(job)]},
        }
        found = self.verbs.find(CONFIG_MAPS, namespace, name)
        if found is not None and "deletionTimestamp" in found["metadata"]:
            return
        made = found or self.verbs.create(CONFIG_MAPS, namespace, config_map)
        attempt = status["attemptStatus"]
        attempt["configMapUID"] = made["metadata"]["uid"]
        attempt["instanceUID"] = f"{attempt['id']}_{made['metadata']['uid']}"
        _move(status, "AttemptCreationRequested")

    def _prepare(self, job: Object, status: Object) -> None:
        for role, task in _tasks(status):
            if task["state"] == "AttemptCreationPending":
                self._create_pod(job, status, role, task)
        _move(status, "AttemptPreparing")

    def _create_pod(self, job: Object, status: Object, role: Object, task: Object) -> None:
        namespace, config_map = job["metadata"]["namespace"], self._config_map(job)
        if config_map is None:
            return
        pod = framework_pods.described(job, status, role, task, config_map)
        try:
            made = self.verbs.find(PODS, namespace, pod["metadata"]["name"])
            if made is not None and "deletionTimestamp" in made["metadata"]:
                return
            made = made or self.verbs.create(PODS, namespace, pod)
        except refusals.Refused as refused:
            ended = completions.not_created(refused)
            if ended is None:
                return self.later(job, self.cluster.settings.back_off)
            task["attemptStatus"]["completionStatus"] = ended
            return _move(task, "AttemptCompleted")
        uid = made["metadata"]["uid"]
        task["attemptStatus"].update(podUID=uid, instanceUID=f"{task['attemptStatus']['id']}_{uid}")
        _move(task, "AttemptCreationRequested")

    def _run(self, job: Object, status: Object) -> None:
        if job["spec"]["executionType"] == "Stop":
            return self._end(status, completions.stopped())
        if self._config_map(job) is None:
            return self._end(status, completions.config_map_deleted())
        for role, task in _tasks(status):
            before = task["state"]
            self._advance(job, status, role, task)
            if task["state"] == "AttemptRunning" and status["state"] == "AttemptPreparing":
                status["runTime"] = status["attemptStatus"]["runTime"] = now()
                _move(status, "AttemptRunning")
            if task["state"] == "Completed" and before != "Completed":
                ended = self._verdict(job, status, role, task)
                if ended is not None:
                    return self._end(status, ended)

    def _advance(self, job: Object, status: Object, role: Object, task: Object) -> None:
        """One step of one task."""
        state, attempt = task["state"], task["attemptStatus"]
        pod = self._pod(job, attempt)
        if state == "AttemptCreationPending":
            self._create_pod(job, status, role, task)
        elif state in ("AttemptCreationRequested", "AttemptPreparing", "AttemptRunning"):
            self._follow(task, pod)
        elif state == "AttemptDeletionPending":
            if pod is not None and "deletionTimestamp" not in pod["metadata"]:
                self.verbs.delete(PODS, job["metadata"]["namespace"], pod["metadata"]["name"])
            _move(task, "AttemptDeletionRequested")
        elif state == "AttemptDeletionRequested":
            if pod is None:
                attempt["completionTime"] = now()
                _move(task, "AttemptCompleted")
        elif state == "AttemptCompleted":
            self._retry_task(job, role, task)

    def _follow(self, task: Object, pod: Object | None) -> None:
        attempt = task["attemptStatus"]
        if pod is None or (
            "deletionTimestamp" in pod["metadata"] and pod["status"].get("phase") not in ("Succeeded", "Failed")
        ):
            if pod is None:
                attempt["completionStatus"] = completions.pod_deleted()
                attempt["completionTime"] = now()
                _move(task, "AttemptCompleted")
            return
        told = pod["status"]
        attempt.update(
            podIP=told.get("podIP", ""), podHostIP=told.get("hostIP", ""), podNodeName=pod["spec"].get("nodeName", "")
        )
        phase = told.get("phase")
        if phase in ("Succeeded", "Failed"):
            attempt["completionStatus"] = completions.of_pod(pod)
            _move(task, "AttemptDeletionPending")
        elif phase == "Running" and task["state"] != "AttemptRunning":
            task["runTime"] = attempt["runTime"] = now()
            _move(task, "AttemptRunning")
        elif task["state"] == "AttemptCreationRequested":
            _move(task, "AttemptPreparing")

    def _retry_task(self, job: Object, role: Object, task: Object) -> None:
        policy = next(each for each in job["spec"]["taskRoles"] if each["name"] == role["name"])["task"]["retryPolicy"]
        ended = task["attemptStatus"]["completionStatus"]
        if completions.retried(policy, task["retryPolicyStatus"], ended):
            number = task["attemptStatus"]["id"] + 1
            task["attemptStatus"] = _task_attempt(job["metadata"]["name"], role["name"], task["index"], number)
            _move(task, "AttemptCreationPending")
        else:
            task["completionTime"] = now()
            _move(task, "Completed")

    def _verdict(self, job: Object, status: Object, role: Object, task: Object) -> Object | None:
        """Whether the end of a task ends the framework's attempt."""
        spec = next(each for each in job["spec"]["taskRoles"] if each["name"] == role["name"])
        policy, ended = spec["frameworkAttemptCompletionPolicy"], task["attemptStatus"]["completionStatus"]
        done = [each for each in role["taskStatuses"] if each["state"] == "Completed"]
        for name, word in (("Failed", "minFailedTaskCount"), ("Succeeded", "minSucceededTaskCount")):
            least = policy.get(word, -1)
            count = sum(each["attemptStatus"]["completionStatus"]["type"]["name"] == name for each in done)
            if ended["type"]["name"] == name and least > 0 and count >= least:
                told = f"{name}TaskCount {count} has reached M{word[1:]} {least} in the TaskRole"
                return completions.triggered(ended, told, role["name"], task["index"])
        if all(each["state"] == "Completed" for _, each in _tasks(status)):
            told = "All Tasks are completed and no FrameworkAttemptCompletionPolicy has ever been triggered"
            return completions.triggered(completions.succeeded(), told, role["name"], task["index"])
        return None

    def _end(self, status: Object, ended: Object) -> None:
        status["attemptStatus"]["completionStatus"] = ended
        _move(status, "AttemptDeletionPending")

    def _complete(self, job: Object, status: Object, ended: Object) -> None:
        """Nothing was made yet."""
        status["attemptStatus"].update(completionStatus=ended, completionTime=now())
        _move(status, "AttemptCompleted")

    def _request_deletion(self, job: Object, status: Object) -> None:
        config_map = self._config_map(job)
        if config_map is not None and "deletionTimestamp" not in config_map["metadata"]:
            name, namespace = config_map["metadata"]["name"], job["metadata"]["namespace"]
            self.verbs.delete(CONFIG_MAPS, namespace, name, {"propagationPolicy": "Foreground"})
        _move(status, "AttemptDeletionRequested")

    def _await_deletion(self, job: Object, status: Object) -> None:
        config_map = self._config_map(job)
        if config_map is None:
            status["attemptStatus"]["completionTime"] = now()
            self._settle_tasks(status)
            _move(status, "AttemptCompleted")
        elif "deletionTimestamp" in config_map["metadata"] and status["state"] != "AttemptDeleting":
            _move(status, "AttemptDeleting")

    def _settle_tasks(self, status: Object) -> None:
        """End the remaining tasks with the attempt."""
        for _, task in _tasks(status):
            if task["state"] != "Completed":
                attempt = task["attemptStatus"]
                if attempt["completionStatus"] is None:
                    attempt["completionStatus"] = completions.attempt_over()
                attempt["completionTime"] = task["completionTime"] = now()
                _move(task, "Completed")

    def _conclude(self, job: Object, status: Object) -> None:
        attempt, policy = status["attemptStatus"], job["spec"]["retryPolicy"]
        stop = job["spec"]["executionType"] == "Stop"
        if not stop and completions.retried(policy, status["retryPolicyStatus"], attempt["completionStatus"]):
            status["attemptStatus"] = _attempt(job, attempt["id"] + 1)
            _move(status, "AttemptCreationPending")
        else:
            status["completionTime"] = now()
            _move(status, "Completed")

    def _config_map(self, job: Object) -> Object | None:
        return self.verbs.find(CONFIG_MAPS, job["metadata"]["namespace"], f"{job['metadata']['name']}-attempt")

    def _pod(self, job: Object, attempt: Object) -> Object | None:
        found = self.verbs.find(PODS, job["metadata"]["namespace"], attempt["podName"])
        return found if found is not None and found["metadata"]["uid"] == attempt["podUID"] else None


def _move(what: Object, state: str) -> None:
    what["state"], what["transitionTime"] = state, now()


def _tasks(status: Object) -> list[tuple[Object, Object]]:
    return [(role, task) for role in status["attemptStatus"]["taskRoleStatuses"] for task in role["taskStatuses"]]


def _no_retries() -> dict[str, Any]:
    return {"totalRetriedCount": 0, "accountableRetriedCount": 0, "retryDelaySec": None}


def _attempt(job: Object, number: int) -> Object:
    name = job["metadata"]["name"]
    roles = [
        {
            "name": role["name"],
            "instanceUID": str(uuid.uuid4()),
            "podGracefulDeletionTimeoutSec": role["task"].get("podGracefulDeletionTimeoutSec"),
            "taskStatuses": [_task(name, role["name"], index) for index in range(role.get("taskNumber", 0))],
        }
        for role in job["spec"].get("taskRoles") or []
    ]
    return {
        "id": number,
        "startTime": now(),
        "runTime": None,
        "completionTime": None,
        "instanceUID": None,
        "configMapName": f"{name}-attempt",
        "configMapUID": None,
        "completionStatus": None,
        "taskRoleStatuses": roles,
    }


def _task(framework: str, role: str, index: int) -> Object:
    return {
        "index": index,
        "instanceUID": str(uuid.uuid4()),
        "startTime": now(),
        "runTime": None,
        "completionTime": None,
        "state": "AttemptCreationPending",
        "transitionTime": now(),
        "deletionPending": False,
        "retryPolicyStatus": _no_retries(),
        "attemptStatus": _task_attempt(framework, role, index, 0),
    }


def _task_attempt(framework: str, role: str, index: int, number: int) -> Object:
    return {
        "id": number,
        "startTime": now(),
        "runTime": None,
        "completionTime": None,
        "instanceUID": None,
        "podName": f"{framework}-{role}-{index}",
        "podUID": None,
        "podIP": None,
        "podHostIP": None,
        "podNodeName": None,
        "completionStatus": None,
    }
