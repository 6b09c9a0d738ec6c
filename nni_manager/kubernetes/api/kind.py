"""A kind of job: where it is in the API, how its status is read, how one is ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from nni_manager.domain.attempt import Observation
from nni_manager.kubernetes.api.client import MERGE_PATCH, Object, Refusal
from nni_manager.kubernetes.api.cluster import Cluster
from nni_manager.kubernetes.api.resource import Resource


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """An operator's kind of job."""

    group: str
    plural: str
    kind: str
    #: The container that runs the trial.
    container: str
    #: State, times and the operator's own reason, read from an object of the kind. Pure.
    read: Callable[[Object], Observation]
    #: The version of the API; empty: whichever the cluster has.
    version: str = ""
    #: Merged into an object to end it; None: it is deleted.
    stop: Object | None = None
    #: The operator that serves the kind, and where to get it.
    operator: str

    async def find(self, cluster: Cluster) -> Resource | None:
        """The kind, in the wanted version if served, else in the cluster's preferred one; None: none. Raises
        Refusal."""
        try:
            group = await cluster.call("GET", f"/apis/{self.group}")
        except Refusal as refusal:
            if refusal.status == 404:
                return None
            raise
        served = [str(one["version"]) for one in group.get("versions") or ()]
        preferred = str((group.get("preferredVersion") or {}).get("version") or "")
        for version in dict.fromkeys([self.version, preferred, *served]):
            if version in served and await self._serves(cluster, version):
                return Resource(self.group, version, self.plural, self.kind)
        return None

    async def _serves(self, cluster: Cluster, version: str) -> bool:
        answer = await cluster.call("GET", f"/apis/{self.group}/{version}")
        return any(one.get("name") == self.plural for one in answer.get("resources") or ())

    def missing(self) -> str:
        return f"the cluster has no kind {self.kind} ({self.plural}.{self.group}); install {self.operator}"

    async def end(self, cluster: Cluster, resource: Resource, name: str, uid: str) -> None:
        """Ends a job; quiet when it is not there. Raises Refusal."""
        if self.stop is None:
            return await cluster.delete(resource, name, uid=uid)
        try:
            await cluster.call(
                "PATCH", resource.path(cluster.namespace, name), body=self.stop, content_type=MERGE_PATCH
            )
        except Refusal as refusal:
            if refusal.status not in (404, 409):
                raise
