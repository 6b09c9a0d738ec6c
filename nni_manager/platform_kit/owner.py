"""The owner of a file.

Storage may assign files of this process to another user: NFS for root, CIFS, or file systems in user space.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def is_ours(folder: Path, owner: int) -> bool:
    """Whether new files of this process in a folder have that owner; False if it cannot create any. Blocks."""
    if owner == os.geteuid():
        return True
    try:
        with tempfile.TemporaryFile(dir=folder) as made:
            return os.fstat(made.fileno()).st_uid == owner
    except OSError:
        return False
