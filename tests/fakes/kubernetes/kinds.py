"""Kinds of objects: built-in ones, and those of CustomResourceDefinitions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True)
class Kind:
    """One resource of one API version."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    #: Whether `…/status` exists: then `status` changes only there, and nothing else does.
    has_status: bool = False
    #: The structural schema of a custom resource.
    schema: dict[str, Any] | None = field(default=None, hash=False, compare=False)
    short_names: tuple[str, ...] = ()

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def key(self) -> str:
        """The same for all versions of a resource."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def custom(self) -> bool:
        return self.schema is not None

    def described(self) -> Iterator[dict[str, Any]]:
        """Its entry in discovery."""
        told: dict[str, Any] = {
            "name": self.plural,
            "singularName": self.kind.lower(),
            "namespaced": self.namespaced,
            "kind": self.kind,
            "verbs": list(VERBS),
        }
        if self.short_names:
            told["shortNames"] = list(self.short_names)
        yield told
        subresources = ["status"] if self.has_status else []
        if self.key == "pods":
            subresources += ["log", "exec", "eviction"]
        for name in subresources:
            verbs = {"log": ["get"], "exec": ["create", "get"], "eviction": ["create"]}
            yield {
                "name": f"{self.plural}/{name}",
                "singularName": "",
                "namespaced": self.namespaced,
                "kind": self.kind,
                "verbs": verbs.get(name, ["get", "patch", "update"]),
            }


_RBAC = "rbac.authorization.k8s.io"
BUILT_IN = (
    Kind("", "v1", "pods", "Pod", has_status=True, short_names=("po",)),
    Kind("", "v1", "secrets", "Secret"),
    Kind("", "v1", "configmaps", "ConfigMap", short_names=("cm",)),
    Kind("", "v1", "services", "Service", has_status=True, short_names=("svc",)),
    Kind("", "v1", "events", "Event", short_names=("ev",)),
    Kind("", "v1", "serviceaccounts", "ServiceAccount", short_names=("sa",)),
    Kind("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", has_status=True, short_names=("pvc",)),
    Kind("", "v1", "resourcequotas", "ResourceQuota", has_status=True, short_names=("quota",)),
    Kind("", "v1", "persistentvolumes", "PersistentVolume", False, True, short_names=("pv",)),
    Kind("", "v1", "namespaces", "Namespace", False, True, short_names=("ns",)),
    Kind("", "v1", "nodes", "Node", False, True, short_names=("no",)),
    Kind(_RBAC, "v1", "roles", "Role"),
    Kind(_RBAC, "v1", "rolebindings", "RoleBinding"),
    Kind(_RBAC, "v1", "clusterroles", "ClusterRole", False),
    Kind(_RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", False),
    Kind("storage.k8s.io", "v1", "storageclasses", "StorageClass", False, short_names=("sc",)),
    Kind("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False, short_names=("pc",)),
    Kind("batch", "v1", "jobs", "Job", has_status=True),
    Kind(
        "apiextensions.k8s.io",
        "v1",
        "customresourcedefinitions",
        "CustomResourceDefinition",
        False,
        True,
        short_names=("crd", "crds"),
    ),
)
DEFINITIONS, JOBS = BUILT_IN[-1], BUILT_IN[-2]
PODS, SECRETS, CONFIG_MAPS, NAMESPACES = BUILT_IN[0], BUILT_IN[1], BUILT_IN[2], BUILT_IN[9]
SERVICES, EVENTS, SERVICE_ACCOUNTS, CLAIMS, NODES = BUILT_IN[3], BUILT_IN[4], BUILT_IN[5], BUILT_IN[6], BUILT_IN[10]


def of_definition(definition: dict[str, Any]) -> list[Kind]:
    """The kinds that a CustomResourceDefinition adds: one for each version it serves."""
    spec = definition["spec"]
    names = spec["names"]
    return [
        Kind(
            spec["group"],
            version["name"],
            names["plural"],
            names["kind"],
            namespaced=spec.get("scope") == "Namespaced",
            has_status="status" in (version.get("subresources") or {}),
            schema=version["schema"]["openAPIV3Schema"],
            short_names=tuple(names.get("shortNames", ())),
        )
        for version in spec["versions"]
        if version.get("served")
    ]


class Kinds:
    """The served kinds."""

    def __init__(self) -> None:
        self._served = {(kind.group, kind.version, kind.plural): kind for kind in BUILT_IN}

    def __iter__(self) -> Iterator[Kind]:
        return iter(self._served.values())

    def add(self, kind: Kind) -> None:
        self._served[kind.group, kind.version, kind.plural] = kind

    def remove(self, key: str) -> None:
        self._served = {at: kind for at, kind in self._served.items() if kind.key != key}

    def find(self, group: str, version: str, plural: str) -> Kind | None:
        return self._served.get((group, version, plural))

    def by_name(self, api_version: str, kind: str) -> Kind | None:
        return next((each for each in self if each.api_version == api_version and each.kind == kind), None)

    def by_key(self, key: str) -> Kind | None:
        return next((kind for kind in self if kind.key == key), None)

    def groups(self) -> dict[str, list[str]]:
        """Group → its versions."""
        found: dict[str, list[str]] = {"authorization.k8s.io": ["v1"], "authentication.k8s.io": ["v1"]}
        for kind in self:
            if kind.group and kind.version not in found.setdefault(kind.group, []):
                found[kind.group].append(kind.version)
        return found
