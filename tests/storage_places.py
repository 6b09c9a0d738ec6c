"""The folder of an experiment on shared storage; its name is random."""

from __future__ import annotations

from pathlib import Path


def folder_of(root: Path, experiment_id: str) -> Path:
    """`root`: the folder of all experiments, ``nni``."""
    (folder,) = root.glob(f"{experiment_id}-*/*")
    return folder
