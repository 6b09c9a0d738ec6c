"""`log/nnimanager.log` of one experiment: what is logged while working on it, in NNI's format."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from contextvars import ContextVar
from io import TextIOWrapper
from pathlib import Path

from nni_manager.store import nni_logs
from trial_runner.wire import foreign_files

#: The experiment that the running code works on; empty for the daemon's own affairs.
current: ContextVar[str] = ContextVar("experiment", default="")

_APPENDING = os.O_WRONLY | os.O_CREAT | os.O_APPEND
_DATE_FORMAT = "%Y-%m-%d %H:%M:%S"
LEVELS = {
    "fatal": "CRITICAL",
    "error": "ERROR",
    "warning": "WARNING",
    "info": "INFO",
    "debug": "DEBUG",
    "trace": "DEBUG",
}


class Formatter(logging.Formatter):
    """`[when] LEVEL (module) message`; every trial has lines, so they are put together without a pattern.

    Each second is put into words once.
    """

    def __init__(self, suffix: Callable[[], str] = str) -> None:
        """`suffix`: what follows the module at the moment of a record."""
        super().__init__()
        self._suffix = suffix
        self._second = -1
        self._words = ""

    def format(self, record: logging.LogRecord) -> str:
        """With the traceback below, where there is one."""
        line = f"[{self._when(record)}] {record.levelname} ({record.module}){self._suffix()} {record.getMessage()}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        if record.stack_info:
            line += "\n" + self.formatStack(record.stack_info)
        return line

    def _when(self, record: logging.LogRecord) -> str:
        second = int(record.created)
        if second != self._second:
            self._words, self._second = time.strftime(_DATE_FORMAT, time.localtime(second)), second
        return self._words


class ExperimentLog(logging.FileHandler):
    """Takes only records of its experiment; `close` takes it out of logging again."""

    def __init__(self, experiment_id: str, folder: Path, level: str) -> None:
        super().__init__(folder / "nnimanager.log", encoding="utf-8", errors="backslashreplace")
        nni_logs.name(Path(self.baseFilename))
        self.setLevel(LEVELS[level])
        self.setFormatter(Formatter())
        self.addFilter(lambda _: current.get() == experiment_id)
        logging.getLogger("nni_manager").addHandler(self)

    def _open(self) -> TextIOWrapper:
        """Raises OSError where a trial put something else in its place: a pipe would never let us go."""
        folder, name = os.path.split(self.baseFilename)
        return open(foreign_files.open_file(folder, name, _APPENDING), "a", encoding=self.encoding, errors=self.errors)

    def close(self) -> None:
        logging.getLogger("nni_manager").removeHandler(self)
        super().close()
