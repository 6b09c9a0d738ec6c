"""Which file systems are mounted where, as this process sees them."""

from __future__ import annotations

import os
import re
from pathlib import Path

#: The kernel's table: device, mount point and type a line; see fstab(5).
_TABLE = Path("/proc/self/mounts")
_ESCAPED = re.compile(rb"\\(\d{3})")
#: SQLite's WAL needs shared memory, which these do not offer between machines.
_NETWORK_FILE_SYSTEMS = (
    "nfs", "nfs4", "cifs", "smb", "smb3", "smbfs", "ceph", "lustre", "glusterfs", "beegfs", "gpfs", "afs", "9p",
    "fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.blobfuse", "fuse.blobfuse2", "fuse.s3fs", "fuse.rclone",
)  # fmt: skip


def is_on_network(path: Path) -> bool:
    """Whether `path` lies on a file system that other machines write too."""
    real = os.path.realpath(path)
    below = [(point, kind) for point, kind in _mounted() if _is_below(real, point)]
    # of two on one point the later one covers the earlier
    return bool(below) and max(reversed(below), key=lambda mount: len(mount[0]))[1] in _NETWORK_FILE_SYSTEMS


def _mounted() -> list[tuple[str, str]]:
    """Mount point and type, in the order they were mounted; nothing where the kernel does not tell."""
    try:
        lines = _TABLE.read_bytes().splitlines()
    except OSError:
        return []
    return [(_text(point), _text(kind)) for _, point, kind, *_ in (line.split(b" ") for line in lines)]


def _text(field: bytes) -> str:
    """Blanks and backslashes are written as octal numbers."""
    return os.fsdecode(_ESCAPED.sub(lambda found: bytes([int(found[1], 8)]), field))


def _is_below(path: str, mount: str) -> bool:
    return path == mount or path.startswith(mount.rstrip("/") + "/")
