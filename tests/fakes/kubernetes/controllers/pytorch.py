"""The controller of PyTorchJob."""

from __future__ import annotations

from tests.fakes.kubernetes.controllers.training import TrainingController
from tests.fakes.kubernetes.store import Object

_WAIT_FOR_MASTER = (
    "err=1;for i in $(seq 100); do if nslookup {master}; then err=0 && break; fi;"
    "echo waiting for master; sleep 2; done; exit $err"
)


class PyTorchJobController(TrainingController):
    """Each process gets the master's address and its rank; workers wait until the master's name resolves."""

    kind_name = "PyTorchJob"
    replicas_field = "pytorchReplicaSpecs"
    container_name, port_name, port = "pytorch", "pytorchjob-port", 23456
    default_restart_policy = "OnFailure"
    operator_name = "pytorchjob-controller"

    def environment(self, job: Object, role: str, index: int) -> list[dict[str, str]]:
        total, master = len(self.addresses(job)), self.pod_name(job, self.leader(job)[0], 0)
        rank = 0 if role == "Master" else index + ("Master" in self.roles(job))
        values = {
            "PYTHONUNBUFFERED": "1",
            "MASTER_PORT": str(self.port),
            "PET_MASTER_PORT": str(self.port),
            "MASTER_ADDR": master,
            "PET_MASTER_ADDR": master,
            "WORLD_SIZE": str(total),
            "RANK": str(rank),
            "PET_NPROC_PER_NODE": str(job["spec"].get("nprocPerNode") or "auto"),
            "PET_NODE_RANK": str(rank),
            "PET_NNODES": str(total),
        }
        return [{"name": name, "value": value} for name, value in values.items()]

    def init_containers(self, job: Object, role: str) -> list[Object]:
        if role == "Master" or "Master" not in self.roles(job):
            return []
        command = _WAIT_FOR_MASTER.format(master=self.pod_name(job, "Master", 0))
        resources = {"limits": {"cpu": "100m", "memory": "20Mi"}, "requests": {"cpu": "50m", "memory": "10Mi"}}
        return [
            {
                "name": "init-pytorch",
                "image": "alpine:3.10",
                "imagePullPolicy": "IfNotPresent",
                "command": ["sh", "-c", command],
                "resources": resources,
            }
        ]

    def leader(self, job: Object) -> tuple[str, int]:
        return ("Master" if "Master" in self.roles(job) else "Worker"), 0

    def is_restarting(self, job: Object, role: str, pod: Object) -> bool:
        """Failed pods with a policy other than Never are reported as restarting, whether or not they restart."""
        return self.restart_policy(self.roles(job)[role]) != "Never"

    def empty_status(self, job: Object, role: str) -> Object:
        labels = {
            "job-name": job["metadata"]["name"],
            "operator-name": self.operator_name,
            "replica-type": role.lower(),
        }
        return {"selector": ",".join(f"training.kubeflow.org/{name}={value}" for name, value in labels.items())}

    def running_message(self, job: Object) -> str:
        return f"PyTorchJob {job['metadata']['name']} is running."

    def succeeded_message(self, job: Object) -> str:
        return f"PyTorchJob {job['metadata']['name']} is successfully completed."

    def failed_message(self, job: Object, count: int, role: str) -> str:
        return f"PyTorchJob {job['metadata']['name']} is failed because {count} {role} replica(s) failed."
