"""The controller of TFJob."""

from __future__ import annotations

import json

from tests.fakes.kubernetes.controllers.training import TrainingController
from tests.fakes.kubernetes.store import Object


class TFJobController(TrainingController):
    """Each process gets the addresses of all others in TF_CONFIG."""

    kind_name = "TFJob"
    replicas_field = "tfReplicaSpecs"
    container_name, port_name, port = "tensorflow", "tfjob-port", 2222
    operator_name = "tfjob-controller"

    def environment(self, job: Object, role: str, index: int) -> list[dict[str, str]]:
        if len(self.addresses(job)) == 1:
            return []  # a job with one process is not distributed
        namespace = job["metadata"]["namespace"]
        cluster = {
            each.lower(): [
                f"{self.pod_name(job, each, at)}.{namespace}.svc:{self.port}" for at in range(self.count(replica))
            ]
            for each, replica in sorted(self.roles(job).items())
            if each != "Evaluator"
        }
        task = {"type": role.lower(), "index": index}
        config = {"cluster": cluster, "task": task, "environment": "cloud"}
        return [{"name": "TF_CONFIG", "value": json.dumps(config, separators=(",", ":"))}]

    def leader(self, job: Object) -> tuple[str, int]:
        roles = self.roles(job)
        return next(((role, 0) for role in ("Chief", "Master", "Worker") if role in roles), (next(iter(roles)), 0))

    def succeeded(self, job: Object, pods: dict[tuple[str, int], Object]) -> bool:
        if job["spec"].get("successPolicy") == "AllWorkers":
            phases = [
                pods[at]["status"].get("phase") if at in pods else None
                for at in self.addresses(job)
                if at[0] == "Worker"
            ]
            return bool(phases) and all(phase == "Succeeded" for phase in phases)
        return super().succeeded(job, pods)

    def _leader_ran(self, job: Object, pods: dict[tuple[str, int], Object]) -> bool:
        """Without a chief, any running worker makes the job running."""
        if self.leader(job)[0] != "Worker":
            return super()._leader_ran(job, pods)
        return any(role == "Worker" and pod["status"].get("phase") == "Running" for (role, _), pod in pods.items())

    def running_message(self, job: Object) -> str:
        return f"TFJob {_full_name(job)} is running."

    def succeeded_message(self, job: Object) -> str:
        return f"TFJob {_full_name(job)} successfully completed."

    def failed_message(self, job: Object, count: int, role: str) -> str:
        return f"TFJob {_full_name(job)} has failed because {count} {role} replica(s) failed."


def _full_name(job: Object) -> str:
    return f"{job['metadata']['namespace']}/{job['metadata']['name']}"
