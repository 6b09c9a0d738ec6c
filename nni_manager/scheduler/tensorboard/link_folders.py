"""Folders of links to the logs of trials, each for one TensorBoard. Only what was made here is ever removed."""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from nni_manager.scheduler.tensorboard.log_folders import TrialLogs

#: Below the data directory, which may have been NNI's: a name that no experiment can have.
FOLDER = ".tensorboards"
_ID = re.compile(r"[0-9a-f]{6}")


def new_id() -> str:
    """A random id of a TensorBoard, the name of its folder."""
    return secrets.token_hex(3)


def make(folder: Path, logs: Sequence[TrialLogs]) -> None:
    """Makes a folder with a link to the logs of each trial, by the trial's number and id. Raises OSError."""
    folder.mkdir(mode=0o700, parents=True)
    for one in logs:
        (folder / f"{one.number}-{one.trial_id}").symlink_to(one.path)


def remove(folder: Path) -> None:
    """Removes a folder that holds nothing but links; any other stays as it is. Blocks."""
    with suppress(OSError):
        links = list(folder.iterdir())
        if folder.is_symlink() or not all(link.is_symlink() for link in links):
            return
        for link in links:
            link.unlink()
        folder.rmdir()


def clear(data_directory: Path) -> None:
    """Removes the folders that a killed daemon left. Blocks."""
    with suppress(OSError):
        for child in list((data_directory / FOLDER).iterdir()):
            if _ID.fullmatch(child.name):
                remove(child)
