"""How a cluster is set up."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tests.fakes import sandbox


@dataclass
class Settings:
    """All that may differ between clusters; times in seconds."""

    #: Where everything lies that must survive a restart.
    folder: Path
    #: 0: any free one, and the same again after a restart.
    port: int = 0
    tls: bool = True
    #: "prune" as a real server does, "refuse" to answer 422.
    unknown_fields: str = "prune"
    minor_version: int = 32
    operator_version: str = "v1.8.1"
    #: Where there are no controllers, jobs stay as they were created.
    controllers: bool = True
    nodes: int = 1
    #: Of each node.
    capacity: dict[str, str] = field(
        default_factory=lambda: {"cpu": "64", "memory": "256Gi", "nvidia.com/gpu": "8", "pods": "110"}
    )
    #: `PATH` in a container where its pod sets none.
    path: str = sandbox.PATH
    #: Folders that stand for NFS exports, by `server:path`.
    exports: dict[str, Path] = field(default_factory=dict)
    #: First wait before a container is started again or an image pulled again; doubles up to thirty times.
    back_off: float = 10.0
    #: The operator's own default where a framework is to be tried again.
    bookmark_every: float = 10.0
    #: Namespaces that are there from the start.
    namespaces: tuple[str, ...] = ("default", "kube-system")
