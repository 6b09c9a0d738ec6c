"""Kinds of objects and where they are in the API."""

from __future__ import annotations

from dataclasses import dataclass


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
CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
