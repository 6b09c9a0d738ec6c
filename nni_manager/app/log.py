"""Logging of the daemon: one line per event on standard error, with its experiment."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import TextIO

from nni_manager.client import daemon_log
from nni_manager.scheduler import experiment_log

#: Number of lines between checks of the log's size.
_LOOK_EVERY = 1000


class _StandardError(logging.StreamHandler[TextIO]):
    """A handler for standard error. `own_file`: restarted when it is large, if standard error writes to it."""

    def __init__(self, own_file: Path) -> None:
        super().__init__(sys.stderr)
        self._own_file = own_file
        self._lines = 0

    def emit(self, record: logging.LogRecord) -> None:
        super().emit(record)
        self._lines += 1
        if self._lines % _LOOK_EVERY == 0:
            daemon_log.renew(self._own_file)


def set_up(level: str, data_directory: Path) -> None:
    """`level`: fatal, error, warning, info, debug or trace."""
    handler = _StandardError(data_directory / daemon_log.LOG_FILE)
    handler.setFormatter(experiment_log.Formatter(suffix=_experiment))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger("nni_manager").setLevel(experiment_log.LEVELS[level])
    logging.raiseExceptions = False  # a log line that cannot be written, for example on a full disk, must not raise
    # no line contains these values, and collecting them costs as much as writing a line
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False


def _experiment() -> str:
    id_ = experiment_log.current.get()
    return f" [{id_}]" if id_ else ""
