"""Code that a client sent: every experiment runs a copy of its own, which lies in its folder and goes with it.

Its trials share the copy and may write into it, as they may into the folder of a caller on this machine. What was sent
stays as it came, for the next experiment.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from nni_manager.config import code_paths, experiment_file
from nni_manager.domain.experiment import ExperimentSpec
from nni_manager.store.folder import Folder


def with_own_code(spec: ExperimentSpec, sent: Path | None, folder: Folder) -> ExperimentSpec:
    """Copies what was sent; answers the experiment that runs the copy. Quiet without. Blocks. Raises OSError."""
    if sent is None:
        return spec
    folder.code.mkdir(mode=0o700)
    _copy(sent, folder.own_code)
    return experiment_file.from_canonical(code_paths.move(spec.canonical, str(sent), str(folder.own_code)))


def _copy(source: Path, target: Path) -> None:
    """Links stay links, and what may be executed may be. The first that cannot be copied ends it."""
    folders = [(os.fspath(source), os.fspath(target))]
    for here, there in folders:
        os.mkdir(there, 0o700)
        with os.scandir(here) as entries:
            for entry in entries:
                place = os.path.join(there, entry.name)
                if entry.is_dir(follow_symlinks=False):
                    folders.append((entry.path, place))
                else:
                    shutil.copy(entry.path, place, follow_symlinks=False)
