"""Where the command's Python finds the stand-in for `nni`: a folder, also when the runner is one file."""

import os
import shutil
import tempfile
import zipfile
from contextlib import ExitStack

import trial_runner

_NAME = "stand_in"


def provide(clean_up: ExitStack, system_dir: str) -> str:
    """A path for PYTHONPATH; `clean_up` removes what was made, in the one folder that surely can be written.

    Raises OSError.
    """
    package = os.path.dirname(os.path.abspath(trial_runner.__file__))
    folder = os.path.join(package, _NAME)
    if os.path.isdir(folder):
        return folder
    made = tempfile.mkdtemp(prefix=".stand-in-", dir=system_dir)
    clean_up.callback(shutil.rmtree, made, ignore_errors=True)
    with zipfile.ZipFile(os.path.dirname(package)) as archive:
        inside = "{}/{}/".format(os.path.basename(package), _NAME)
        archive.extractall(made, [name for name in archive.namelist() if name.startswith(inside)])
    return os.path.join(made, inside.rstrip("/"))
