"""The base of tuners, assessors and advisors: a checkpoint of their state."""

from __future__ import annotations

import os

TYPE_CHECKING = False  # `typing` is slow to import and only checkers need it
if TYPE_CHECKING:
    from typing import Optional


class Recoverable:
    """The state of an algorithm, kept beyond its process."""

    def load_checkpoint(self) -> None:
        """Restores what `save_checkpoint` wrote; called when an experiment is resumed."""

    def save_checkpoint(self) -> None:
        """Writes the state to `get_checkpoint_path`."""

    def get_checkpoint_path(self) -> Optional[str]:
        """The folder for the state; None when the experiment has none."""
        folder = os.environ.get("NNI_CHECKPOINT_DIRECTORY")
        return folder if folder and os.path.isdir(folder) else None

    def _on_exit(self) -> None:
        pass

    def _on_error(self) -> None:
        pass


def missing(algorithm: object, method: str) -> NotImplementedError:
    """The error of a class that lacks a method; no method of the base: users' classes have names of their own."""
    return NotImplementedError("{} has to define {}.".format(type(algorithm).__name__, method))
