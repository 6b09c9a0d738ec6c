"""The log that a trial's page shows: which one, and its end as text for browsers without scripts."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request

from nni_manager.domain.errors import NniManagerError
from nni_manager.scheduler.experiments import attempt_logs
from nni_manager.web.rendering import context_of, experiment_id
from nni_manager.web.trial.log_tail import TAIL_BYTES, LogName
from nni_manager.web.trial.shown_trial import ShownTrial
from nni_manager.web.trial.trial_files import in_bytes
from trial_runner.protocol import LOG_FILES, STDERR_FILE, STDOUT_FILE


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedLog:
    """The log that is chosen."""

    chosen: LogName
    names: tuple[str, ...]
    attempts: tuple[int, ...]
    #: Its end; empty where nobody asked for it by ``?log=``.
    text: str = ""
    #: What the text leaves out, or why there is none; may be empty.
    note: str = ""

    @property
    def key(self) -> str:
        """As the stream of events takes it."""
        return f"{self.chosen.trial}.{self.chosen.attempt}.{self.chosen.name}"


async def opened(request: Request, trial: ShownTrial) -> OpenedLog:
    """The log that ``?log=1.stdout`` asks for, with its end; without that, the one to begin with. Raises
    InvalidInput."""
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
    service, id_ = context_of(request).service, experiment_id(request)
    try:
        file = await attempt_logs.find(service, id_, trial.row["id"], log.attempt, log.name)
        size = await file.size()
        data = await file.read(max(0, size - TAIL_BYTES), TAIL_BYTES)
    except NniManagerError as error:
        return "", str(error)
    left = size - len(data)
    return data.decode("utf-8", "replace"), f"{in_bytes(left)} before this are left out" if left > 0 else ""
