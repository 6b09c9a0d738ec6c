"""Parameters and code that lie on storage which the manager shares with us: put to where this process works."""

import os
import shutil
import time
from typing import Mapping

from trial_runner import code_archive, protocol

#: Seconds: what the manager wrote a moment ago may not be seen here yet.
_PATIENCE_S = 15.0
_LOOK_S = 0.2


def place(environment: Mapping[str, str], system_dir: str, code_dir: str) -> None:
    """Quiet where nothing says that they lie elsewhere, and where they were placed. Raises BadArchive and OSError."""
    archive, record = environment.get(protocol.ENV_CODE_ARCHIVE), environment.get(protocol.ENV_RECORD)
    own = os.path.join(system_dir, protocol.PARAMETER_FILE)
    if record and not os.path.exists(own):
        _wait_for(record)
        shutil.copyfile(record, own)
    if archive and not os.path.exists(code_dir):
        _wait_for(archive)
        draft = "{}.{}".format(code_dir.rstrip("/"), os.urandom(4).hex())
        os.makedirs(draft)
        code_archive.unpack(archive, draft)
        os.rename(draft, code_dir)


def _wait_for(path: str) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not os.path.exists(path):
        if time.monotonic() > deadline:
            raise FileNotFoundError(
                2, "it is not there: what is mounted here is not the storage that the manager has mounted", path
            )
        time.sleep(_LOOK_S)
