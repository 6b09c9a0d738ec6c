"""`log/nnimanager.log` of one experiment: what is logged while working on it, in NNI's format."""

from __future__ import annotations

import logging
import time
from contextvars import ContextVar
from pathlib import Path

#: The experiment that the running code works on; empty for the daemon's own affairs.
current: ContextVar[str] = ContextVar("experiment", default="")

FORMAT = "[%(asctime)s] %(levelname)s (%(module)s) %(message)s"
DATE_FORMAT = "%Y-%m-%d %H:%M:%S"
LEVELS = {
    "fatal": "CRITICAL",
    "error": "ERROR",
    "warning": "WARNING",
    "info": "INFO",
    "debug": "DEBUG",
    "trace": "DEBUG",
}


class Formatter(logging.Formatter):
    """Puts each second into words once: a trial that takes milliseconds has several lines in the same one."""

    def __init__(self, format: str = FORMAT) -> None:
        super().__init__(format)
        self._second = -1
        self._words = ""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        """Of the moment a record was made."""
        second = int(record.created)
        if second != self._second:
            self._words, self._second = time.strftime(DATE_FORMAT, time.localtime(second)), second
        return self._words


class ExperimentLog(logging.FileHandler):
    """Takes only records of its experiment; `close` takes it out of logging again."""

    def __init__(self, experiment_id: str, folder: Path, level: str) -> None:
        super().__init__(folder / "nnimanager.log", encoding="utf-8", errors="backslashreplace")
        self.setLevel(LEVELS[level])
        self.setFormatter(Formatter())
        self.addFilter(lambda _: current.get() == experiment_id)
        logging.getLogger("nni_manager").addHandler(self)

    def close(self) -> None:
        logging.getLogger("nni_manager").removeHandler(self)
        super().close()
