"""`log/nnimanager.log` of one experiment: records logged while working on it, in NNI's format."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from io import TextIOWrapper
from pathlib import Path

from nni_manager.store.nni import nni_format
from trial_runner.wire import foreign_files

#: The experiment that the running code works for; empty: none.
current: ContextVar[str] = ContextVar("experiment", default="")

#: Characters that end a line, move a cursor or change text direction; tabs are allowed.
_UNFIT = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
#: Maximum number of logged lines of a text.
_MOST_LINES = 40
#: Attribute of a record with several lines.
_LINES = "lines"

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
    """`[when] LEVEL (module) message`; formatted by hand for speed, as every trial logs lines.

    The time is formatted once a second. Text of trials and tuners in a message cannot end the line or control a
    terminal.
    """

    def __init__(self, suffix: Callable[[], str] = str) -> None:
        """`suffix`: called for each record; its text follows the module."""
        super().__init__()
        self._suffix = suffix
        self._second = -1
        self._words = ""

    def format(self, record: logging.LogRecord) -> str:
        """The record as lines of the log, followed by its traceback, if any."""
        head = f"[{self._when(record)}] {record.levelname} ({record.module}){self._suffix()} "
        lines: Sequence[str] = getattr(record, _LINES, None) or [record.getMessage()]
        line = "\n".join([head + legible(one) for one in lines])
        if record.exc_info:
            line += "\n" + _legible_lines(self.formatException(record.exc_info))
        if record.stack_info:
            line += "\n" + _legible_lines(self.formatStack(record.stack_info))
        return line

    def _when(self, record: logging.LogRecord) -> str:
        second = int(record.created)
        if second != self._second:
            self._words, self._second = time.strftime(_DATE_FORMAT, time.localtime(second)), second
        return self._words


def legible(text: str) -> str:
    """The text on one line, with control characters escaped."""
    if text.isprintable():
        return text
    return _UNFIT.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def _legible_lines(text: str) -> str:
    return "\n".join(map(legible, text.split("\n")))


def write_lines(log: logging.Logger, file: str, lines: Sequence[str]) -> None:
    """Logs several lines of INFO as one record. `file`: of the calling module, as finding it would cost as much as
    writing a line."""
    if log.isEnabledFor(logging.INFO):
        said = "\n".join(lines), (), None, None, {"action": "changes", _LINES: lines}
        log.handle(log.makeRecord(log.name, logging.INFO, file, 0, *said))


def write_text(log: logging.Logger, level: int, head: str, text: str, action: str) -> None:
    """Logs the last lines of `text`, each prefixed with `head`."""
    lines = [line for line in text.splitlines() if line.strip()]
    for line in lines[-_MOST_LINES:]:
        log.log(level, "%s: %s", head, line, extra={"action": action})


class ExperimentLog(logging.FileHandler):
    """Handler for the records of one experiment; `close` removes it from logging."""

    def __init__(self, experiment_id: str, folder: Path, level: str) -> None:
        super().__init__(folder / "nnimanager.log", encoding="utf-8", errors="backslashreplace")
        nni_format.nni_log_name(Path(self.baseFilename))
        self.setLevel(LEVELS[level])
        self.setFormatter(Formatter())
        self.addFilter(lambda _: current.get() == experiment_id)
        logging.getLogger("nni_manager").addHandler(self)

    def _open(self) -> TextIOWrapper:
        """Opens the log file. Raises OSError for anything except a regular file: a trial's pipe would block."""
        folder, name = os.path.split(self.baseFilename)
        return open(foreign_files.open_file(folder, name, _APPENDING), "a", encoding=self.encoding, errors=self.errors)

    def close(self) -> None:
        logging.getLogger("nni_manager").removeHandler(self)
        super().close()
