"""Logging of the daemon: one line per event on standard error, with the experiment it belongs to."""

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
    logging.raiseExceptions = False  # a full disk must not make logging the problem
    # nothing of it is in a line, and finding it out costs as much as writing one
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False


def _experiment() -> str:
    id_ = experiment_log.current.get()
    return f" [{id_}]" if id_ else ""
