"""The log on a trial's page: its end as text for browsers without scripts, and new output as stream events."""

from __future__ import annotations

import asyncio
import codecs
import json
from dataclasses import dataclass

from starlette.requests import Request

from nni_manager.domain import formats
from nni_manager.domain.errors import InvalidInput, NniManagerError
from nni_manager.scheduler.experiments import attempt_logs
from nni_manager.scheduler.experiments.attempt_logs import LogFile
from nni_manager.scheduler.experiments.commands import ExperimentCommands
from nni_manager.store.experiment import trial_reads
from nni_manager.streams.event_stream import event
from nni_manager.web.rendering import context_of, experiment_id
from nni_manager.web.trial.shown_trial import ShownTrial
from trial_runner.protocol import LOG_FILES, STDERR_FILE, STDOUT_FILE


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedLog:
    """The selected log."""

    chosen: LogName
    names: tuple[str, ...]
    attempts: tuple[int, ...]
    #: Its end; empty without ``?log=``.
    text: str = ""
    #: What the text omits, or why it is missing; may be empty.
    note: str = ""

    @property
    def key(self) -> str:
        """Its name in the event stream."""
        return f"{self.chosen.trial}.{self.chosen.attempt}.{self.chosen.name}"


async def opened(request: Request, trial: ShownTrial) -> OpenedLog:
    """The log of ``?log=1.stdout`` with its end, else the default log. Raises InvalidInput."""
    asked = request.query_params.get("log", "")
    attempts = tuple(attempt["number"] for attempt in trial.row["attempts"])
    start = LogName(trial.number, trial.row["attempt"], STDERR_FILE if trial.has_failed else STDOUT_FILE)
    found = OpenedLog(chosen=start, names=tuple(LOG_FILES), attempts=attempts)
    if not asked:
        return found
    chosen = LogName.parse(f"{trial.number}.{asked}")
    text, note = await _end(request, trial, chosen)
    return OpenedLog(chosen=chosen, names=found.names, attempts=attempts, text=text, note=note)


async def _end(request: Request, trial: ShownTrial, log: LogName) -> tuple[str, str]:
    service, id_ = context_of(request).commands, experiment_id(request)
    try:
        file = await attempt_logs.find(service, id_, trial.row["id"], log.attempt, log.name)
        size = await file.size()
        data = await file.read(max(0, size - TAIL_BYTES), TAIL_BYTES)
    except NniManagerError as error:
        return "", str(error)
    left = size - len(data)
    return data.decode("utf-8", "replace"), f"{formats.size(left)} before this are not shown" if left > 0 else ""


#: Number of bytes from the end that a page starts with, and maximum of one event. Faster output is skipped.
TAIL_BYTES = 256 * 1024
#: Seconds between two reads of a local file, and of a file read through a service. Growth causes no event.
_HERE_S, _ELSEWHERE_S = 0.5, 3.0


@dataclass(frozen=True, slots=True)
class LogName:
    """``17.1.stdout``: trial number, attempt, file."""

    trial: int
    attempt: int
    name: str

    @staticmethod
    def parse(text: str) -> LogName:
        """Raises InvalidInput."""
        trial, _, rest = text.partition(".")
        attempt, _, name = rest.partition(".")
        are_numbers = all(part.isascii() and part.isdecimal() and len(part) < 10 for part in (trial, attempt))
        if not are_numbers or name not in LOG_FILES:
            raise InvalidInput(f"log: must be TRIAL.ATTEMPT.NAME with two numbers and one of {', '.join(LOG_FILES)}")
        return LogName(int(trial), int(attempt), name)


class LogTail:
    """One reader's position in a log. The file is located at each read: it moves here after the job has ended."""

    def __init__(self, commands: ExperimentCommands, id: str, log: LogName) -> None:
        self._commands = commands
        self._id = id
        self._log = log
        self._trial_id = ""
        #: Offset of the next byte to send; None: nothing was sent.
        self._offset: int | None = None
        self._was_here = True
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._trouble = ""
        self._text = ""
        self._taken = asyncio.Event()
        self._looking = asyncio.Lock()

    async def follow(self, news: asyncio.Event) -> None:
        """Set `news` whenever there is more to read. Never returns."""
        while True:
            await self.look()
            if self._text:
                self._taken.clear()
                news.set()
                await self._taken.wait()
            await asyncio.sleep(_HERE_S if self._was_here else _ELSEWHERE_S)

    async def look(self) -> None:
        """Read new output."""
        async with self._looking:
            self._text += await self._look()

    def take(self) -> str:
        """The events since the last call."""
        taken, self._text = self._text, ""
        self._taken.set()
        return taken

    async def _look(self) -> str:
        try:
            file = await self._find()
            sent = await self._news(file)
        except NniManagerError as error:
            return self._tell(str(error))
        self._trouble = ""
        return sent

    def _tell(self, trouble: str) -> str:
        """An event with the reason why the log cannot be read, sent once per reason."""
        if trouble == self._trouble:
            return ""
        self._trouble = trouble
        return self._event(self._offset or 0, self._offset or 0, "", trouble=trouble)

    async def _find(self) -> LogFile:
        if not self._trial_id:
            number = self._log.trial
            self._trial_id = await self._commands.read(self._id, lambda c: trial_reads.id_of(c, number))
        file = await attempt_logs.find(self._commands, self._id, self._trial_id, self._log.attempt, self._log.name)
        if file.is_here and not self._was_here:
            self._offset = None  # the local copy may start later
        self._was_here = file.is_here
        return file

    async def _news(self, file: LogFile) -> str:
        size = await file.size() if file.is_here or self._offset is None else None
        if size is not None:
            start = 0 if self._offset is None or size < self._offset else self._offset
            start = max(start, size - TAIL_BYTES)
        else:
            start = self._offset or 0
        data = await file.read(start, TAIL_BYTES)
        if not data and start == self._offset:
            return ""
        if start != self._offset:
            self._decoder.reset()
        self._offset = start + len(data)
        return self._event(start, max(size or 0, self._offset), self._decoder.decode(data))

    def _event(self, offset: int, size: int, text: str, **more: str) -> str:
        """`offset`: of the first byte; if it is beyond the end of the previous event, output was skipped."""
        log = {"trial": self._log.trial, "attempt": self._log.attempt, "name": self._log.name}
        place = {"offset": offset, "end": self._offset or 0, "size": size}
        return event("log", json.dumps({**log, **place, "text": text, **more}))
