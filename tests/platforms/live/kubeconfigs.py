"""Kubeconfig files: the cluster and the user of one context, to be written out for another address, user or
namespace."""

from __future__ import annotations

import base64
import copy
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import yaml

_CONTEXT = "live"
_PATHS = ("certificate-authority", "client-certificate", "client-key", "tokenFile")
_INLINE = ("certificate-authority", "client-certificate", "client-key")
_SECRET = ("token", "password", "client-key-data")


@dataclass(frozen=True, kw_only=True)
class Kubeconfig:
    """What one context names, as `kubectl` would read it."""

    cluster: dict[str, Any]
    user: dict[str, Any]

    @classmethod
    def read(cls, paths: str, context: str = "") -> Self:
        """`paths`: as in `KUBECONFIG`; `context`: empty is the current one. Raises OSError, LookupError, YAMLError."""
        files = [_absolute(Path(path).expanduser()) for path in paths.split(os.pathsep) if path]
        name = context or next((file["current-context"] for file in files if file.get("current-context")), "")
        found = _named(files, "contexts", name)["context"]
        cluster = _named(files, "clusters", found["cluster"])["cluster"]
        return cls(cluster=cluster, user=_named(files, "users", found["user"])["user"])

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must stand in no log."""
        return tuple(str(self.user[name]) for name in _SECRET if self.user.get(name))

    def of(self, token: str) -> Kubeconfig:
        """The same cluster, with the user of this token."""
        return Kubeconfig(cluster=self.cluster, user={"token": token})

    def at(self, address: str, authority: Path) -> Kubeconfig:
        """The same user, and the cluster at another address. `authority`: the signer of its certificate, PEM."""
        return Kubeconfig(cluster={"server": address, "certificate-authority": str(authority)}, user=self.user)

    def write(self, path: Path, namespace: str) -> Path:
        """For its owner alone. Certificates and keys lie beside it: of those within, the official client would leave
        files and descriptors behind."""
        context = {"cluster": _CONTEXT, "user": _CONTEXT, "namespace": namespace}
        whole = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": _CONTEXT,
            "clusters": [{"name": _CONTEXT, "cluster": _written_out(self.cluster, path)}],
            "users": [{"name": _CONTEXT, "user": _written_out(self.user, path)}],
            "contexts": [{"name": _CONTEXT, "context": context}],
        }
        _write(path, yaml.safe_dump(whole).encode())
        return path


def _written_out(entry: dict[str, Any], path: Path) -> dict[str, Any]:
    found = dict(entry)
    for name in _INLINE:
        if data := found.pop(f"{name}-data", None):
            file = path.with_name(f"{path.name}-{name}")
            _write(file, base64.b64decode(data))
            found[name] = str(file)
    return found


def _write(path: Path, data: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(data)


def _absolute(path: Path) -> dict[str, Any]:
    """The file's content; paths in it start at its folder."""
    file: dict[str, Any] = copy.deepcopy(yaml.safe_load(path.read_text()))
    for kind, part in (("clusters", "cluster"), ("users", "user")):
        for one in file.get(kind) or ():
            entry = one[part] or {}
            entry.update({name: str(path.parent.absolute() / entry[name]) for name in _PATHS if entry.get(name)})
    return file


def _named(files: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    found = next((one for file in files for one in file.get(kind) or () if one["name"] == name), None)
    if found is None:
        raise LookupError(f"the kubeconfig has no {name!r} in {kind}")
    return found
