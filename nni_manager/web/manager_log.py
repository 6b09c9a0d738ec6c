"""The end of the logs of manager and tuner, filtered by level and text."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nni_manager.domain.errors import InvalidInput
from nni_manager.store.folder import Folder
from nni_manager.web.experiment_pages import render_tab
from nni_manager.web.rendering import context_of, experiment_id
from trial_runner.wire import foreign_files

FILES = ("nnimanager.log", "dispatcher.log")
#: Least serious first. A level includes those after it.
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
LINES = (200, 1000, 5000)
#: Number of bytes at the end of a file that are searched.
TAIL_BYTES = 4 * 1024 * 1024
#: Start of a line of the manager, or of ``logging`` in a tuner: time in brackets, then the level.
_LEVEL = re.compile(r"^\[[^\]]{8,40}\] (TRACE|DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL)\b")
_AS = {"TRACE": "DEBUG", "WARN": "WARNING", "CRITICAL": "ERROR", "FATAL": "ERROR"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LogQuery:
    """File and filter."""

    file: str = FILES[0]
    #: The least serious level that is shown.
    level: str = "DEBUG"
    #: Text that a line contains; case is ignored. Empty: any.
    text: str = ""
    most: int = LINES[0]

    @staticmethod
    def parse(query: Mapping[str, str]) -> LogQuery:
        """Raises InvalidInput."""
        file, level = query.get("file") or FILES[0], query.get("level") or "DEBUG"
        most = query.get("lines") or str(LINES[0])
        numbers = tuple(map(str, LINES))
        known: tuple[str, ...]
        for name, value, known in (("file", file, FILES), ("level", level, LEVELS), ("lines", most, numbers)):
            if value not in known:
                raise InvalidInput(f"{name}: must be one of {', '.join(known)}")
        return LogQuery(file=file, level=level, text=query.get("q", ""), most=int(most))


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    text: str
    #: Empty: unknown.
    level: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    lines: list[LogLine]
    #: Number of searched lines that match.
    matching: int
    #: Whether only the end of the file was searched.
    is_part: bool
    #: Size of the file in bytes; None: the file does not exist.
    size: int | None


async def _log(request: Request) -> Response:
    query = LogQuery.parse(request.query_params)
    entry = await context_of(request).commands.entry(experiment_id(request))
    tail = await asyncio.to_thread(read, entry.folder, query)
    return await render_tab(
        request,
        "log.html",
        tab="log",
        query=query,
        tail=tail,
        files=FILES,
        levels=LEVELS,
        counts=LINES,
        zone=time.strftime("%Z"),
    )


def read(folder: Folder, query: LogQuery) -> Tail:
    """The last matching lines of a file. Blocks."""
    try:
        size = foreign_files.size(str(folder.log), query.file)
        data = foreign_files.read(str(folder.log), query.file, -TAIL_BYTES, TAIL_BYTES)
    except OSError:
        return Tail(lines=[], matching=0, is_part=False, size=None)
    text = data.decode(errors="replace")
    is_part = size > len(data)
    chosen = _chosen(text.split("\n", 1)[-1] if is_part else text, query)
    return Tail(lines=chosen[-query.most :], matching=len(chosen), is_part=is_part, size=size)


def _chosen(text: str, query: LogQuery) -> list[LogLine]:
    least, wanted, level = LEVELS.index(query.level), query.text.lower(), ""
    found = []
    for line in text.splitlines():
        if match := _LEVEL.match(line):  # the lines of a traceback belong to the line before them
            level = _AS.get(match[1], match[1])
        if (not level or LEVELS.index(level) >= least) and wanted in line.lower():
            found.append(LogLine(text=line, level=level))
    return found


ROUTES = [Route("/experiments/{id}/log", _log)]
