"""Decides how an attempt ended, from the platform's report on the job and the runner's on the command.

The runner knows how the user's command ended; the platform knows its own actions. If they disagree, the platform is
right about its actions (preempted, lost, out of memory, timeout) and the runner about the command.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nni_manager.domain.attempt import Observation
from nni_manager.domain.job import JobState
from nni_manager.domain.reason import Reason
from nni_manager.domain.text import last_line
from nni_manager.domain.trial import explain
from trial_runner import protocol

#: Clock offsets below this, network delay included, count as 0.
_CLOCKS_AGREE_MS = 2000
#: Actions of the platform: a command that a signal ended was ended by them.
PLATFORM_CAUSED = frozenset({JobState.PREEMPTED, JobState.LOST})
#: What a job says first, on stderr, of shared storage that it cannot use, and its exit codes then: it sees another
#: storage than the manager, or none; it could not mount it.
NOT_THERE = "sharedStorage:"
EXIT_OTHER_STORAGE, EXIT_NOT_MOUNTED = 66, 67
#: Causes that the platform knows better: its message names the limit.
_EXPLAINED_THERE = (Reason.TIMEOUT, Reason.OUT_OF_MEMORY)
#: Signals that ask for an end.
_STOPS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerExit:
    """A runner's report on the end of the user's command."""

    exit_code: int | None
    signal: int | None
    stderr_tail: str
    started_ms: int | None
    ended_ms: int | None
    #: Outbox → its size in bytes when the command had ended.
    outboxes: Mapping[str, int]
    #: Sentences about results that will never arrive.
    undelivered: Sequence[str] = ()
    #: False: the command never ran; exit code and stderr are the runner's own.
    was_started: bool = True
    #: What could not be read of its logs; else empty.
    doubt: str = ""

    @staticmethod
    def parse(text: str) -> RunnerExit:
        """The report from the stored JSON of the runner's post."""
        word: dict[str, Any] = json.loads(text)
        return RunnerExit(
            exit_code=word.get("exitCode"),
            signal=word.get("signal"),
            stderr_tail=word.get("stderrTail") or "",
            started_ms=word.get("startedMs"),
            ended_ms=word.get("endedMs"),
            outboxes=word.get("outboxes") or {},
            undelivered=tuple(word.get("undelivered") or ()),
            was_started=word.get("wasStarted", True),
            doubt=word.get("doubt") or "",
        )

    def report(self) -> Observation:
        if not self.was_started:
            words = self.stderr_tail or f"exit code {self.exit_code}"
            return Observation(
                state=JobState.FAILED,
                exit_code=self.exit_code,
                cause=Reason.RUNNER_FAILED,
                message=f"the trial runner did not start the command: {words}",
                ended_ms=self.ended_ms,
            )
        return of_storage(
            Observation(
                state=JobState.SUCCEEDED if self.exit_code == 0 else JobState.FAILED,
                exit_code=self.exit_code,
                signal=self.signal,
                stderr_tail=self.stderr_tail,
                started_ms=self.started_ms,
                ended_ms=self.ended_ms,
            )
        )

    @property
    def doubts(self) -> str:
        """Why something may be missing, or empty."""
        undelivered = f"not everything was delivered: {' '.join(self.undelivered)}" if self.undelivered else ""
        return "; ".join(filter(None, (undelivered, self.doubt)))


def of_storage(report: Observation) -> Observation:
    """The report on a job; if the job could not use shared storage, with that reason as its message."""
    _, mark, words = report.stderr_tail.rpartition(NOT_THERE)
    if not (mark and words.strip()) or report.exit_code not in (EXIT_OTHER_STORAGE, EXIT_NOT_MOUNTED):
        return report
    sentence = words.strip().partition("\n")[0]
    return replace(report, message=f"sharedStorage.remoteMountPoint: {sentence}", stderr_tail="")  # it is told once


def apart_ms(sent_ms: int | None, now_ms: int) -> int:
    """Clock offset of the runner in milliseconds (ours minus its). Offsets within network delay count as 0."""
    apart = 0 if sent_ms is None else now_ms - sent_ms
    return apart if abs(apart) >= _CLOCKS_AGREE_MS else 0


def possible_ms(moment_ms: int | None, intended_ms: int, now_ms: int, apart_ms: int = 0) -> int | None:
    """A time of another machine by our clock, in milliseconds since the epoch: between `intended_ms` and now.

    `apart_ms`: offset of that machine's clock (ours minus its)."""
    return None if moment_ms is None else min(max(moment_ms + apart_ms, intended_ms), now_ms)


def with_possible_times(word: str, intended_ms: int, now_ms: int) -> str:
    """The JSON of a runner's report on the end, its times corrected by `possible_ms`."""
    entry: dict[str, Any] = json.loads(word)
    apart = apart_ms(entry.pop("nowMs", None), now_ms)
    told = [name for name in ("startedMs", "endedMs") if name in entry]
    times = {name: possible_ms(entry[name], intended_ms, now_ms, apart) for name in told}
    return json.dumps({**entry, **times})


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEnd:
    report: Observation
    #: Both reports in one sentence, when they contradict each other; else empty.
    disagreement: str = ""
    #: Why results may be missing; else empty.
    doubt: str = ""


#: Doubt about an attempt with a runner that registered and never reported the end.
UNHEARD = "its runner did not confirm that all results were delivered; missing ones are in the outbox of its folder"
#: Doubt about an attempt that succeeded although its runner never registered.
NEVER_HEARD = "the job succeeded, but its trial runner never connected; results, if any, were not received"


def missing_results(missing: Mapping[str, tuple[int, int]]) -> str:
    """A message about incomplete outboxes: name → (bytes received, bytes written)."""
    some = "; ".join(f"{stored} of {size} bytes of {name}" for name, (stored, size) in list(missing.items())[:3])
    more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
    return f"its results may be incomplete: {some}{more} arrived in time; the rest is in the folder of the attempt"


def unstarted(platform: Observation) -> Observation:
    """The observation of a job with a silent runner, whose exit code may be the runner's instead of the command's."""
    words = protocol.RUNNER_EXITS.get(platform.exit_code or 0)
    if platform.state is not JobState.FAILED or words is None:
        return platform
    said = last_line(platform.stderr_tail).removeprefix("trial_runner: ")
    message = f"the trial runner did not start the command, {words} (exit code {platform.exit_code})"
    message += f": {said}" if said else "; see the job's log"
    return replace(platform, cause=Reason.RUNNER_FAILED, message=message)


def weigh(platform: Observation | None, runner: RunnerExit | None) -> AttemptEnd | None:
    """The attempt's end, from both reports; None while neither reports an end."""
    if runner is None:
        return None if platform is None else AttemptEnd(report=platform)
    word = runner.report()
    if platform is None:
        return AttemptEnd(report=word)
    if platform.state is JobState.CANCELLED:  # by a user or by us: the command did not end on its own
        is_over = word.state is JobState.SUCCEEDED
        cancelled = replace(word, state=JobState.CANCELLED, message=platform.message or word.message)
        return AttemptEnd(report=word if is_over else cancelled)
    if platform.state in PLATFORM_CAUSED or _was_ended_with_another(platform, word):
        believed = word if word.state is JobState.SUCCEEDED else platform
    else:
        message = platform.message if platform.cause in _EXPLAINED_THERE else word.message
        explained = replace(word, native_reason=platform.native_reason, cause=platform.cause, message=message)
        believed = explained if runner.was_started else word
    fits = (platform.state is JobState.SUCCEEDED) == (word.state is JobState.SUCCEEDED)
    if fits:
        return AttemptEnd(report=believed)
    both = f"the platform reports {platform.state} ({explain(platform)}), the runner reports {explain(word)}"
    doubt = killed_process(platform) if believed.state is JobState.SUCCEEDED else ""
    return AttemptEnd(report=believed, disagreement=both, doubt=doubt)


def killed_process(platform: Observation) -> str:
    """The doubt about an attempt whose job ran out of memory, though that did not end its command; else empty."""
    if platform.cause is not Reason.OUT_OF_MEMORY:
        return ""
    return f"a process of its job was killed: {explain(platform)}"


def _was_ended_with_another(platform: Observation, word: Observation) -> bool:
    """Whether this process was only stopped because another process of the job failed with the reported exit code."""
    was_stopped = word.signal in _STOPS or word.exit_code in {128 + number for number in _STOPS}
    is_anothers = platform.exit_code not in {None, 0, *(128 + number for number in _STOPS)}
    return platform.state is JobState.FAILED and was_stopped and is_anothers
