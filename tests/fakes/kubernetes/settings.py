"""Settings of a cluster."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tests.fakes import sandbox


@dataclass
class Settings:
    """Settings of a cluster; times in seconds."""

    #: Folder of the persistent state.
    folder: Path
    #: 0: any free port, which is kept after a restart.
    port: int = 0
    tls: bool = True
    #: "prune": like a real server; "refuse": answer 422.
    unknown_fields: str = "prune"
    minor_version: int = 32
    operator_version: str = "v1.8.1"
    #: Whether objects have `metadata.managedFields`, as on a real server; doubles their size.
    managed_fields: bool = False
    #: Version of Kueue's API; empty: Kueue is not installed.
    kueue: str = ""
    #: Whether controllers run; without them jobs do not change.
    controllers: bool = True
    nodes: int = 1
    #: GPUs per node.
    capacity: dict[str, str] = field(
        default_factory=lambda: {"cpu": "64", "memory": "256Gi", "nvidia.com/gpu": "8", "pods": "110"}
    )
    #: Default `PATH` in a container.
    path: str = sandbox.PATH
    #: Local folders as NFS exports, by `server:path`.
    exports: dict[str, Path] = field(default_factory=dict)
    #: First back-off before a container restart or repeated pull; doubles up to thirty times its value.
    back_off: float = 10.0
    #: The operator's default delay before a framework retry.
    bookmark_every: float = 10.0
    #: Initial namespaces.
    namespaces: tuple[str, ...] = ("default", "kube-system")
