"""The progress of an experiment, in numbers and in one line. Pure: state in, text out.

A state is the API's description of an experiment, as in events.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TextIO

from nni_manager.client.formats import best_label, cut, number
from nni_manager.domain.experiment import ExperimentStatus
from nni_manager.domain.formats import duration
from nni_manager.domain.text import printable
from nni_manager.domain.trial_status import TrialStatus, ended, failed
from nni_manager.programs import pareto_set

State = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The progress of an experiment at one moment."""

    #: Trials that have ended, with any status.
    done: int
    running: int
    #: Trials that failed by their own code or by their platform.
    failed: int
    #: The experiment's `maxTrialNumber`; None: no limit.
    total: int | None
    #: Seconds the experiment was active; time when it was stopped does not count.
    elapsed_s: float
    #: The experiment's `maxExperimentDuration`; None: no limit.
    limit_s: float | None
    #: Whether `elapsed_s` grows; False on hold.
    is_active: bool
    #: The best final result; None: no best trial yet.
    best_value: float | None
    best_trial: str
    #: See `client.formats.best_label`.
    best_label: str = "best"
    #: Number of trials in the Pareto set of an experiment with several objectives; 0: a single objective.
    pareto_size: int = 0
    #: Whether the set satisfies the constraints; if not, no trial does.
    is_feasible: bool = True

    @property
    def fraction(self) -> float | None:
        """The share that is done, 0 to 1, by the nearer limit; None without a limit."""
        parts = [self.done / self.total] if self.total else []
        parts += [self.elapsed_s / self.limit_s] if self.limit_s else []
        return min(max(parts), 1.0) if parts else None

    @property
    def left_s(self) -> float | None:
        """The estimated time left, in seconds; None: cannot be estimated yet."""
        estimates = [self.limit_s - self.elapsed_s] if self.limit_s is not None else []
        if self.total is not None and self.done:
            estimates.append(self.elapsed_s / self.done * (self.total - self.done))
        return max(min(estimates), 0.0) if estimates else None


def read(state: State, *, since_s: float = 0.0) -> Progress:
    """The progress in a state. `since_s`: age of the state, in seconds."""
    counts: Mapping[str, int] = state["counts"]
    best = state["best"] or {}
    is_active = ExperimentStatus(state["status"]).is_active and not state["hold"]
    return Progress(
        done=ended(counts),
        running=counts.get(TrialStatus.RUNNING, 0) + counts.get(TrialStatus.UNKNOWN, 0),
        failed=failed(counts),
        total=state["maxTrialNumber"],
        elapsed_s=state["execDurationMs"] / 1000 + (since_s if is_active else 0.0),
        limit_s=_seconds(state["maxExperimentDuration"]),
        is_active=is_active,
        best_value=best.get("value"),
        best_trial=best.get("trialId", ""),
        best_label=best_label(state),
        pareto_size=state.get("paretoSize") or 0,
        is_feasible=pareto_set.is_feasible(state),
    )


def failures(state: State) -> str:
    """The number of failed trials and the most common failure, or empty.

    Such as ``57 of 60 trials failed, 55 of them in the same way: its command failed, exit code 1: KeyError: 'x'
    (USER_CODE); `nnictl trial show k3v9x0qa -T ab1cd` shows one of them``.
    """
    count, common = failed(state["counts"]), state["commonFailure"]
    text = f"{count} of {ended(state['counts'])} trials failed" if count else ""
    if not (text and common):
        return text
    alike = ""
    if count > 1:
        alike = f", {common['trials']} of them in the same way" if common["trials"] > 1 else ", for example"
    shows = f"`nnictl trial show {state['id']} -T {common['trialId']}` shows {'one of them' if count > 1 else 'it'}"
    return f"{text}{alike}: {common['sentence']}; {shows}"


def waits_for(state: State, now_s: float | None = None) -> str:
    """What an experiment waits for and for how long, or empty. `now_s`: seconds since the epoch; None: now.

    Such as ``waits for 4 min 2 s: remote is away: no route to host``.
    """
    found = state.get("waitsFor")
    if not found:
        return ""
    now_ms = (time.time() if now_s is None else now_s) * 1000
    lasts = "" if found["sinceMs"] is None else f" for {duration(max(now_ms - found['sinceMs'], 0))}"
    return f"waits{lasts}: {found['sentence'].removeprefix('waits ')}"


def line(progress: Progress, columns: int | None = None) -> str:
    """The progress in one line of at most `columns` characters; None: unlimited.

    In a narrow terminal, the times are omitted first.
    """
    parts = [part for part in (_trials(progress), _best(progress), _times(progress)) if part]
    while columns is not None and len(parts) > 1 and len("; ".join(parts)) > columns:
        parts.pop()
    text = printable("; ".join(parts))
    return text if columns is None else cut(text, columns)


def tenth(progress: Progress) -> int:
    """Tenths of the experiment that are done, 0 to 10; without a limit, tens of trials."""
    return progress.done // 10 if progress.fraction is None else int(progress.fraction * 10 + 1e-9)


def _trials(progress: Progress) -> str:
    done = f"{progress.done}/{progress.total}" if progress.total is not None else f"{progress.done} trials"
    return f"{done} done, {progress.running} running, {progress.failed} failed"


_NONE_FEASIBLE = "best: no trial satisfies the constraints yet"


def _best(progress: Progress) -> str:
    if progress.pareto_size and not progress.best_trial:
        return f"best: a Pareto set of {progress.pareto_size}" if progress.is_feasible else _NONE_FEASIBLE
    value = number(progress.best_value)
    return f"{progress.best_label} {value} (trial {progress.best_trial})" if progress.best_trial else ""


def _times(progress: Progress) -> str:
    elapsed = duration(progress.elapsed_s * 1000)
    if not progress.is_active or progress.left_s is None:
        return elapsed
    return f"{elapsed}, about {duration(progress.left_s * 1000)} left"


def _seconds(limit: object) -> float | None:
    from nni_manager.config.reading import scalars

    return None if limit is None else scalars.seconds(limit)


#: At most five redraws a second.
REDRAW_S = 0.2


class Display(Protocol):
    #: Seconds to wait for a new state before `show` is called again; None: no limit.
    tick_s: float | None

    def show(self, now: Progress) -> None: ...

    def note(self, text: str) -> None:
        """Show a message on a separate line."""

    def close(self, now: Progress) -> None:
        """Show the final progress, on a separate line."""


class TerminalDisplay:
    """A display on a terminal, which redraws its line at most once per `REDRAW_S`.

    Later states wait for the next tick.
    """

    tick_s: float | None = REDRAW_S

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._drawn_s = float("-inf")
        self._drawn = ""

    def show(self, now: Progress) -> None:
        text = line(now, shutil.get_terminal_size().columns - 1)
        if text != self._drawn and self._clock() - self._drawn_s >= REDRAW_S:
            self._draw(text)

    def note(self, text: str) -> None:
        self._draw(text)
        self._stream.write("\n")

    def close(self, now: Progress) -> None:
        self._draw(line(now))
        self._stream.write("\n")

    def _draw(self, text: str) -> None:
        self._stream.write(f"\r\x1b[K{printable(text)}")  # ESC [K: clear to the end of the line
        self._stream.flush()
        self._drawn, self._drawn_s = text, self._clock()


class LineDisplay:
    """A display in a file or pipe: a line at the start, at every tenth, and at the end."""

    tick_s: float | None = 5.0  # for notes about time that goes by

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._step: int | None = None

    def show(self, now: Progress) -> None:
        if (step := tenth(now)) != self._step:
            self._step = step
            self._write(line(now))

    def note(self, text: str) -> None:
        self._write(text)

    def close(self, now: Progress) -> None:
        self._write(line(now))

    def _write(self, text: str) -> None:
        self._stream.write(printable(text) + "\n")
        self._stream.flush()


def display_for(stream: TextIO) -> Display:
    return TerminalDisplay(stream) if stream.isatty() else LineDisplay(stream)
