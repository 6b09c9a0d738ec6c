"""The labels of an experiment in its folder, beside the index: an index that was lost is made again from the folders,
and a folder that is copied takes them along. All functions block."""

from __future__ import annotations

import json
import os
from pathlib import Path

from nni_manager.domain.errors import InvalidInput, StoreUnavailable
from nni_manager.store.index.labels import Labels
from trial_runner.wire import foreign_files

FILE = "labels.json"
#: More than the longest labels take.
_MOST_BYTES = 256 * 1024


def read(folder: Path) -> Labels:
    """The labels in a folder; those that are missing or cannot be read are empty."""
    try:
        text = foreign_files.read(os.path.realpath(folder), FILE, 0, _MOST_BYTES)
        values = json.loads(text)
        return Labels.parse(values) if isinstance(values, dict) else Labels()
    except (OSError, ValueError, InvalidInput):
        return Labels()


def write(folder: Path, labels: Labels) -> None:
    """Writes them whole. Raises StoreUnavailable."""
    text = json.dumps(labels.as_json(), ensure_ascii=False, indent=1)
    try:
        foreign_files.write_whole(os.path.realpath(folder), FILE, text.encode())
    except OSError as error:
        raise StoreUnavailable(f"notes and tags cannot be written to {folder / FILE} ({error.strerror})") from error
