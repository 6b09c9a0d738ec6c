"""One trial as its page shows it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from nni_manager.domain.trial import OPEN_STATUSES, reason_in_words
from nni_manager.scheduler.experiments.commands import ExperimentCommands
from nni_manager.store.connection import Connection
from nni_manager.store.experiment import answers, trial_reads
from nni_manager.web import formats
from nni_manager.web.trial import parameter_texts, trial_files
from nni_manager.web.trial.trial_files import ListedFiles

Json = dict[str, Any]

#: Ends of which the last lines of stderr are shown at once.
_SHOWN_AT_ONCE = ("FAILED", "SYS_CANCELED")
_ORDINALS = {1: "st", 2: "nd", 3: "rd"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownParameter:
    name: str
    #: Rounded, and with all digits.
    text: str
    whole: str
    #: Its place among all trials, 0 to 1; None: it is no number, or not known.
    share: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A line of the timeline."""

    ms: int
    sentence: str
    #: Since the line before.
    after: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the trial stands among the others."""

    rank: int | None = None
    of: int = 0
    percentiles: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownTrial:
    #: As the API answers it, with its attempts.
    row: Json
    parameters: tuple[ShownParameter, ...]
    rank: str
    previous: int | None
    next: int | None
    #: Numbers of the trial that it repeats, and of those that repeat it.
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
        """Why it has its status, in a sentence; may be empty."""
        row = self.row
        if row["wait"]:
            return str(row["wait"]["sentence"])
        asked = f"asked to stop: {row['stopRequest']}" if row["stopRequest"] and not row["endedMs"] else ""
        return reason_in_words(row["reason"], row["message"], row["lastWords"]) or asked

    @property
    def result(self) -> str:
        return formats.result(self.row["finalResult"])

    @property
    def latest(self) -> str:
        return "" if self.row["lastValue"] is None else formats.number(self.row["lastValue"])

    @property
    def duration(self) -> str:
        started, ended = self.row["startedMs"], self.row["endedMs"]
        return "" if started is None else formats.duration((self.now_ms if ended is None else ended) - started)

    @property
    def attempt(self) -> Json | None:
        """The attempt that counts."""
        return self.row["attempts"][-1] if self.row["attempts"] else None

    @property
    def stderr(self) -> str:
        """The last lines of stderr that are known of its latest attempt."""
        return str(self.attempt["stderrTail"]).strip("\n") if self.attempt else ""

    @property
    def json(self) -> str:
        return parameter_texts.as_json(self.row["parameters"])

    @property
    def code(self) -> str:
        return parameter_texts.as_code(self.row["parameters"])

    @property
    def timeline(self) -> tuple[Moment, ...]:
        moments = sorted(_moments(self.row), key=lambda moment: moment.ms)
        before = [moments[0], *moments[:-1]]
        return tuple(replace(now, after=_after(now.ms - then.ms)) for then, now in zip(before, moments, strict=True))


async def shown(
    service: ExperimentCommands, id: str, trial: str, place: Place, attempt: int | None, now_ms: int
) -> ShownTrial:
    """A trial by number or id; `attempt`: whose files are listed, None: the latest one's.

    Raises NotFound, StoreError.
    """

    def read(connection: Connection) -> tuple[Json, tuple[int | None, int | None], int | None, list[int]]:
        row = json.loads(answers.trial(connection, trial_id(connection, trial)))
        repeats = trial_reads.number_of(connection, row["repeats"]) if row["repeats"] else None
        around = trial_reads.neighbours(connection, row["sequenceId"])
        return row, around, repeats, trial_reads.repetitions(connection, row["id"])

    row, (previous, following), repeats, repeated_by = await service.read(id, read)
    folder = (await service.entry(id)).folder.trials
    return ShownTrial(
        row=row,
        parameters=tuple(_parameters(row["parameters"], place)),
        rank=f"{ordinal(place.rank)} of {place.of}" if place.rank else "",
        previous=previous,
        next=following,
        repeats=repeats,
        repeated_by=tuple(repeated_by),
        files=await trial_files.listed(folder, row["id"], attempt or row["attempt"]),
        now_ms=now_ms,
    )


def trial_id(connection: Connection, trial: str) -> str:
    """The id of a trial by its number or id; an id that is none is looked for as such. Raises NotFound."""
    is_number = trial.isascii() and trial.isdecimal() and len(trial) < 16
    return trial_reads.id_of(connection, int(trial)) if is_number else trial


def place_of(answer: Mapping[str, Any]) -> Place:
    """The place that the analysis answers."""
    return Place(rank=answer.get("rank"), of=answer.get("of") or 0, percentiles=answer.get("percentiles") or {})


def ordinal(number: int) -> str:
    """``1st``, ``2nd``, ``13th``."""
    suffix = "th" if number % 100 in (11, 12, 13) else _ORDINALS.get(number % 10, "th")
    return f"{number}{suffix}"


def _after(ms: int) -> str:
    return formats.duration(ms) if ms > 0 else ""


def _parameters(values: object, place: Place) -> Iterator[ShownParameter]:
    for name, value in parameter_texts.flattened(values):
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        share = place.percentiles.get(name) if is_number else None
        whole = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        yield ShownParameter(name=name, text=parameter_texts.shown(value), whole=whole, share=share)


def _moments(row: Json) -> Iterator[Moment]:
    yield Moment(ms=row["createdMs"], sentence=f"made, its parameters {_SOURCES.get(row['parameterSource'], 'given')}")
    for one in row["attempts"]:
        which = f"attempt {one['number']} " if len(row["attempts"]) > 1 else ""
        yield Moment(ms=one["submittedMs"], sentence=f"{which}given to {one['service'] or 'its platform'}")
        if one["startedMs"] is not None:
            yield Moment(ms=one["startedMs"], sentence=f"{which}started{' on ' if one['place'] else ''}{one['place']}")
        for gap in one["interruptions"]:
            yield Moment(ms=gap["sinceMs"], sentence=f"{which}out of reach: {gap['sentence']}")
            yield Moment(ms=gap["untilMs"], sentence=f"{which}in reach again")
        if one["endedMs"] is not None:
            yield Moment(ms=one["endedMs"], sentence=f"{which}ended: {how_it_ended(one) or one['state'].lower()}")
    if row["endedMs"] is not None:
        yield Moment(ms=row["endedMs"], sentence=f"decided: {row['status']}")


_SOURCES = {"algorithm": "by the tuner", "customized": "by a person", "resumed": "of an earlier run"}


def how_it_ended(attempt: Mapping[str, Any]) -> str:
    """How an attempt ended, in a few words; empty: it has not, or nothing is known."""
    exit_code, signal = attempt["exitCode"], attempt["signal"]
    code = f"exit code {exit_code}" if exit_code is not None else f"signal {signal}" if signal is not None else ""
    words = [code, attempt["cause"] or "", attempt["reason"], attempt["message"]]
    return ", ".join(dict.fromkeys(word for word in words if word))
