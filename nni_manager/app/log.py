"""Logging of the daemon: one line per event on standard error, with its experiment."""

from __future__ import annotations

import logging
import sys

from nni_manager.scheduler import experiment_log


def set_up(level: str) -> None:
    """`level`: fatal, error, warning, info, debug or trace."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(experiment_log.Formatter(suffix=_experiment))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger("nni_manager").setLevel(experiment_log.LEVELS[level])
    logging.raiseExceptions = False  # a log line that cannot be written, as on a full disk, must not raise
    # no line contains them, and collecting them costs as much as writing a line
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False


def _experiment() -> str:
    id_ = experiment_log.current.get()
    return f" [{id_}]" if id_ else ""
