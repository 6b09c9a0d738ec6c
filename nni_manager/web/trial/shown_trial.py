"""Values on a trial's page: state, parameters to read and copy, and local files of its attempt."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from starlette.responses import Response, StreamingResponse

from nni_manager.analysis.flattened import flat
from nni_manager.domain.errors import NotFound
from nni_manager.domain.formats import duration, number
from nni_manager.domain.formats import size as shown_size
from nni_manager.domain.ids import attempt_directory
from nni_manager.domain.trial import explanation
from nni_manager.domain.trial_status import OPEN_STATUSES
from nni_manager.scheduler.experiments.attempt_logs import file_here
from nni_manager.scheduler.experiments.commands import ExperimentCommands
from nni_manager.store.connection import Connection
from nni_manager.store.experiment import answers, trial_reads
from nni_manager.web import formats
from trial_runner.wire import foreign_files

Json = dict[str, Any]

#: Final statuses for which the end of stderr is shown open.
_SHOWN_AT_ONCE = ("FAILED", "SYS_CANCELED")
_ORDINALS = {1: "st", 2: "nd", 3: "rd"}
#: Shorter durations are not shown.
_SHORTEST_MS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownParameter:
    name: str
    #: Rounded text, and text with all digits.
    text: str
    whole: str
    #: Percentile among all trials, 0 to 1; None: not a number, or unknown.
    share: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A line of the timeline."""

    ms: int
    sentence: str
    #: Time since the previous line.
    after: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownTrial:
    #: The API's answer, with attempts.
    row: Json
    parameters: tuple[ShownParameter, ...]
    rank: str
    previous: int | None
    next: int | None
    #: Number of the trial that it repeats, and of those that repeat it.
    repeats: int | None
    repeated_by: tuple[int, ...]
    files: ListedFiles
    now_ms: int

    @property
    def number(self) -> int:
        return int(self.row["sequenceId"])

    @property
    def is_open(self) -> bool:
        return self.row["status"] in OPEN_STATUSES

    @property
    def has_failed(self) -> bool:
        return self.row["status"] in _SHOWN_AT_ONCE

    @property
    def why(self) -> str:
        """The reason for its status; may be empty."""
        return explanation(self.row)

    @property
    def result(self) -> str:
        return formats.result(self.row["finalResult"])

    @property
    def latest(self) -> str:
        return "" if self.row["lastValue"] is None else number(self.row["lastValue"])

    @property
    def duration(self) -> str:
        started, ended = self.row["startedMs"], self.row["endedMs"]
        return "" if started is None else duration((self.now_ms if ended is None else ended) - started)

    @property
    def attempt(self) -> Json | None:
        """The latest attempt."""
        return self.row["attempts"][-1] if self.row["attempts"] else None

    @property
    def stderr(self) -> str:
        """The known end of stderr of its latest attempt."""
        return str(self.attempt["stderrTail"]).strip("\n") if self.attempt else ""

    @property
    def json(self) -> str:
        return as_json(self.row["parameters"])

    @property
    def code(self) -> str:
        return as_code(self.row["parameters"])

    @property
    def timeline(self) -> tuple[Moment, ...]:
        moments = sorted(_moments(self.row), key=lambda moment: moment.ms)
        before = [moments[0], *moments[:-1]]
        pairs = zip(before, moments, strict=True)
        return tuple(replace(now, after=_after(now.ms - then.ms)) for then, now in pairs)


def _after(ms: int) -> str:
    """The duration as text; empty: too short."""
    return "" if ms < _SHORTEST_MS else duration(ms)


async def shown(commands: ExperimentCommands, id: str, trial: str, place: Json, now_ms: int) -> ShownTrial:
    """A trial by number or id, with the files of its latest attempt.

    `place`: the answer to ``trial``; may be empty. Raises NotFound, StoreError.
    """

    def read(connection: Connection) -> tuple[Json, tuple[int | None, int | None], int | None, list[int]]:
        row = json.loads(answers.trial(connection, trial_id(connection, trial)))
        repeats = trial_reads.number_of(connection, row["repeats"]) if row["repeats"] else None
        around = trial_reads.neighbours(connection, row["sequenceId"])
        return row, around, repeats, trial_reads.repetitions(connection, row["id"])

    row, (previous, following), repeats, repeated_by = await commands.read(id, read)
    folder = (await commands.entry(id)).folder.trials
    return ShownTrial(
        row=row,
        parameters=tuple(_parameters(row["parameters"], place.get("percentiles") or {})),
        rank=f"{ordinal(place['rank'])} of {place['of']}" if place.get("rank") else "",
        previous=previous,
        next=following,
        repeats=repeats,
        repeated_by=tuple(repeated_by),
        files=await listed(folder, row["id"], row["attempt"]),
        now_ms=now_ms,
    )


def trial_id(connection: Connection, trial: str) -> str:
    """The id of a trial, given its number or id; ids are not validated. Raises NotFound for an unknown number."""
    is_number = trial.isascii() and trial.isdecimal() and len(trial) < 16
    return trial_reads.id_of(connection, int(trial)) if is_number else trial


def ordinal(number: int) -> str:
    """``1st``, ``2nd``, ``13th``."""
    suffix = "th" if number % 100 in (11, 12, 13) else _ORDINALS.get(number % 10, "th")
    return f"{number}{suffix}"


def _parameters(values: object, percentiles: Mapping[str, float]) -> Iterator[ShownParameter]:
    named = flat(values) if isinstance(values, dict) else {"": values}
    for name, value in named.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        share = percentiles.get(name) if is_number else None
        whole = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        # in one line, with six significant digits of a number
        text = number(value) if isinstance(value, float) else formats.short(value)
        yield ShownParameter(name=name, text=text, whole=whole, share=share)


def _moments(row: Json) -> Iterator[Moment]:
    yield Moment(ms=row["createdMs"], sentence=f"created, parameters {_SOURCES.get(row['parameterSource'], 'given')}")
    for one in row["attempts"]:
        which = f"attempt {one['number']} " if len(row["attempts"]) > 1 else ""
        yield Moment(ms=one["submittedMs"], sentence=f"{which}submitted to {one['service'] or 'its platform'}")
        if one["startedMs"] is not None:
            yield Moment(ms=one["startedMs"], sentence=f"{which}started{' on ' if one['place'] else ''}{one['place']}")
        for gap in one["interruptions"]:
            yield Moment(ms=gap["sinceMs"], sentence=f"{which}unreachable: {gap['sentence']}")
            yield Moment(ms=gap["untilMs"], sentence=f"{which}reachable again")
        if one["endedMs"] is not None:
            yield Moment(ms=one["endedMs"], sentence=f"{which}ended: {how_it_ended(one) or one['state'].lower()}")
    if row["endedMs"] is not None:
        yield Moment(ms=row["endedMs"], sentence=f"final status: {row['status']}")


_SOURCES = {"algorithm": "from the tuner", "customized": "from a user", "resumed": "from an earlier run"}


def how_it_ended(attempt: Mapping[str, Any]) -> str:
    """How an attempt ended; empty: not ended, or unknown."""
    exit_code, signal = attempt["exitCode"], attempt["signal"]
    code = f"exit code {exit_code}" if exit_code is not None else f"signal {signal}" if signal is not None else ""
    words = [code, attempt["cause"] or "", attempt["reason"], attempt["message"]]
    return ", ".join(dict.fromkeys(word for word in words if word))


def as_json(values: object) -> str:
    """Indented JSON, with all digits."""
    return json.dumps(values, ensure_ascii=False, indent=2)


def as_code(values: object) -> str:
    """Python code with the same values."""
    text = _python(values, "")
    needs_math = "math." in text and any(word in text for word in ("math.nan", "math.inf"))
    return f"{'import math' + chr(10) * 2 if needs_math else ''}params = {text}"


def _python(value: object, indent: str) -> str:
    inner = indent + "    "
    if isinstance(value, Mapping) and value:
        lines = [f"{inner}{name!r}: {_python(below, inner)},\n" for name, below in value.items()]
        return "{\n" + "".join(lines) + indent + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_python(one, indent) for one in value) + "]"
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return {"nan": "math.nan", "inf": "math.inf", "-inf": "-math.inf"}[repr(value)]
    return repr(value)


#: Maximum number of files listed.
_MOST = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedFile:
    """A file below an attempt's folder."""

    #: Printable path below the folder.
    name: str
    #: The path, quoted for an address.
    quoted: str
    size: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedFiles:
    files: tuple[ListedFile, ...] = ()
    #: Number of files that are not listed.
    others: int = 0


async def listed(trials: Path, trial_id: str, attempt: int) -> ListedFiles:
    """The files of an attempt; empty if its folder is not on this machine."""
    return await asyncio.to_thread(_listed, str(trials), attempt_directory(trial_id, attempt))


def _listed(trials: str, folder: str) -> ListedFiles:
    names = foreign_files.listing(trials, folder).files
    sizes = ((name, _size(trials, name)) for name in names[:_MOST])
    found = [_file(name.removeprefix(f"{folder}/"), size) for name, size in sizes if size is not None]
    return ListedFiles(files=tuple(found), others=max(0, len(names) - _MOST))


def _file(name: str, size: int) -> ListedFile:
    readable = name.encode("utf-8", "backslashreplace").decode()
    return ListedFile(name=readable, quoted=quote(name, errors="surrogateescape"), size=shown_size(size))


def _size(trials: str, name: str) -> int | None:
    try:
        return foreign_files.size(trials, name)
    except OSError:
        return None  # removed in the meantime


async def download(trials: Path, trial_id: str, attempt: int, name: str) -> Response:
    """The current content of a file, as a download that browsers do not display. Raises NotFound."""
    file = file_here(trials, f"{attempt_directory(trial_id, attempt)}/{name}")
    if any(part.startswith(".") for part in name.split("/")):
        raise NotFound(f"file {name!r} does not exist or is hidden")
    size = await file.size()
    last = quote(name.rpartition("/")[2], safe="", errors="surrogateescape")
    headers = {
        "Content-Disposition": f"attachment; filename*=UTF-8''{last}",
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",
    }
    return StreamingResponse(file.pieces(0, size), media_type="application/octet-stream", headers=headers)
