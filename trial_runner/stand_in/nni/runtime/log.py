"""What the stand-in prints, and the logs of other modules."""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` is slow to import and only checkers need it
if TYPE_CHECKING:
    from logging import Handler
    from typing import Optional

__all__ = ["enable_global_logging", "silence_stdout"]

_is_silent = False
#: Prints the logs of all modules.
_handler: Optional[Handler] = None


def silence_stdout() -> None:
    """Stop the stand-in from printing: addresses of experiments, results outside an experiment, and logs."""
    global _is_silent
    _is_silent = True
    enable_global_logging(False)


def enable_global_logging(enable: bool = True) -> None:
    """Print the logs of all modules from level INFO, or stop. Nothing is printed after `silence_stdout`."""
    global _handler
    import logging
    import sys

    root = logging.getLogger()
    if _handler is not None and not enable:
        root.removeHandler(_handler)
        _handler = None
    elif _handler is None and enable and not _is_silent:
        _handler = logging.StreamHandler(sys.stdout)
        _handler.setFormatter(logging.Formatter("[%(asctime)s] %(levelname)s (%(name)s) %(message)s"))
        root.addHandler(_handler)
        root.setLevel(logging.INFO)


def say(text: str) -> None:
    """Prints a line, unless it is silenced."""
    if not _is_silent:
        print(text, flush=True)
