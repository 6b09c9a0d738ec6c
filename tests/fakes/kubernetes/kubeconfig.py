"""Kubeconfig files."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.fakes.kubernetes.certificates import Pair


@dataclass(frozen=True)
class Credentials:
    """One kind of credentials."""

    token: str = ""
    pair: Pair | None = None
    #: A command that prints an ExecCredential.
    exec: dict[str, Any] | None = None


def written(
    path: Path, server: str, authority: bytes | None, credentials: Credentials, namespace: str = "default"
) -> Path:
    """With one context, named `fake`; readable by its owner alone."""
    cluster: dict[str, Any] = {"server": server}
    if authority:
        cluster["certificate-authority-data"] = _encoded(authority)
    user: dict[str, Any] = {}
    if credentials.token:
        user["token"] = credentials.token
    if credentials.pair:
        user["client-certificate-data"] = _encoded(credentials.pair.certificate)
        user["client-key-data"] = _encoded(credentials.pair.key)
    if credentials.exec:
        user["exec"] = credentials.exec
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "fake", "cluster": cluster}],
        "users": [{"name": "fake", "user": user}],
        "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "fake", "namespace": namespace}}],
        "current-context": "fake",
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(config))
    return path


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()
