"""Whose a file is.

Storage may give what this process makes to another user than it runs as: NFS for root, CIFS, or file systems in user
space.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def is_ours(folder: Path, owner: int) -> bool:
    """Whether files that this process makes in a folder have that owner; False where it can make none. Blocks."""
    if owner == os.geteuid():
        return True
    try:
        with tempfile.TemporaryFile(dir=folder) as made:
            return os.fstat(made.fileno()).st_uid == owner
    except OSError:
        return False
