"""The evidence of an attempt's end: the word of the platform that ran the job, and that of the runner inside it,
weighed.

The runner knows how the user's command ended; the platform knows what it did to the job. Where they disagree, the
platform is believed about its own deeds (preempted, lost, out of memory) and the runner about the command.
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

#: Clocks of two machines that differ by less, and the way between them, are the same.
_CLOCKS_AGREE_MS = 2000
#: The platform's own deeds: a command that ended by a signal was ended by them.
PLATFORM_CAUSED = frozenset({JobState.PREEMPTED, JobState.LOST})
#: Signals that ask for an end.
_STOPS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerExit:
    """A runner's word about the end of the user's command, as it was posted."""

    exit_code: int | None
    signal: int | None
    stderr_tail: str
    started_ms: int | None
    ended_ms: int | None
    #: Name → bytes each outbox had in the end.
    outboxes: Mapping[str, int]
    #: Sentences about what will never come.
    undelivered: Sequence[str] = ()
    #: False: the command never ran; the exit code is the runner's own and the tail its words.
    was_started: bool = True
    #: What could not be read of its logs; else empty.
    doubt: str = ""

    @staticmethod
    def parse(text: str) -> RunnerExit:
        """The runner's word from the JSON of its post, as the store keeps it."""
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
        return Observation(
            state=JobState.SUCCEEDED if self.exit_code == 0 else JobState.FAILED,
            exit_code=self.exit_code,
            signal=self.signal,
            stderr_tail=self.stderr_tail,
            started_ms=self.started_ms,
            ended_ms=self.ended_ms,
        )

    @property
    def doubts(self) -> str:
        """Why something may be missing; else empty."""
        undelivered = f"not everything was delivered: {' '.join(self.undelivered)}" if self.undelivered else ""
        return "; ".join(filter(None, (undelivered, self.doubt)))


def apart_ms(told_ms: int | None, now_ms: int) -> int:
    """The milliseconds by which a runner's clock is behind ours (negative: ahead), by what it showed when it spoke; 0
    where that
    may as well be the way here. Milliseconds."""
    apart = 0 if told_ms is None else now_ms - told_ms
    return apart if abs(apart) >= _CLOCKS_AGREE_MS else 0


def possible_ms(moment_ms: int | None, intended_ms: int, now_ms: int, apart_ms: int = 0) -> int | None:
    """`moment_ms` by the clock of another machine, which is `apart_ms` behind ours as far as is known: nothing of an
    attempt happened before it was decided on (`intended_ms`), and nothing after now. Milliseconds since the epoch."""
    return None if moment_ms is None else min(max(moment_ms + apart_ms, intended_ms), now_ms)


def with_possible_times(word: str, intended_ms: int, now_ms: int) -> str:
    """The JSON of a runner's word about the end, see `possible_ms`."""
    entry: dict[str, Any] = json.loads(word)
    apart = apart_ms(entry.pop("nowMs", None), now_ms)
    told = [name for name in ("startedMs", "endedMs") if name in entry]
    times = {name: possible_ms(entry[name], intended_ms, now_ms, apart) for name in told}
    return json.dumps({**entry, **times})


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEnd:
    report: Observation
    #: Both words, when they do not fit together; else empty.
    disagreement: str = ""
    #: Why results may be missing; else empty.
    doubt: str = ""


#: Of an attempt whose runner greeted and was never heard of its end.
UNHEARD = (
    "its runner never said that all its results were delivered; those that are missing are in the outbox of its folder"
)
#: Of an attempt that ended well, and should have had a runner.
NEVER_HEARD = (
    "its job ended well, but its trial runner was never heard: what the command reported, if it ran, is not here"
)


def missing_results(missing: Mapping[str, tuple[int, int]]) -> str:
    """A sentence about outboxes that did not come whole: name → (bytes that came, bytes that were written)."""
    some = "; ".join(f"{stored} of {size} bytes of {name}" for name, (stored, size) in list(missing.items())[:3])
    more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
    return f"its results may not be complete: {some}{more} came in time; the rest is in the folder it ran in"


def unstarted(platform: Observation) -> Observation:
    """The report on a job whose runner was never heard: an exit code of the runner's own is none of the command's."""
    words = protocol.RUNNER_EXITS.get(platform.exit_code or 0)
    if platform.state is not JobState.FAILED or words is None:
        return platform
    said = last_line(platform.stderr_tail).removeprefix("trial_runner: ")
    message = f"the trial runner did not start the command, {words} (exit code {platform.exit_code})"
    message += f": {said}" if said else "; see the job's log"
    return replace(platform, cause=Reason.RUNNER_FAILED, message=message)


def weigh(platform: Observation | None, runner: RunnerExit | None) -> AttemptEnd | None:
    """The attempt's end, by the words of both; None while neither says that it has ended."""
    if runner is None:
        return None if platform is None else AttemptEnd(report=platform)
    word = runner.report()
    if platform is None:
        return AttemptEnd(report=word)
    if platform.state is JobState.CANCELLED:  # whoever asked for it: the command did not end by itself
        is_over = word.state is JobState.SUCCEEDED
        return AttemptEnd(report=word if is_over else replace(word, state=JobState.CANCELLED))
    if platform.state in PLATFORM_CAUSED or _was_ended_with_another(platform, word):
        believed = word if word.state is JobState.SUCCEEDED else platform
    else:
        explained = replace(word, native_reason=platform.native_reason, cause=platform.cause, message="")
        believed = explained if runner.was_started else word
    fits = (platform.state is JobState.SUCCEEDED) == (word.state is JobState.SUCCEEDED)
    return AttemptEnd(report=believed, disagreement="" if fits else _both(platform, word))


def _was_ended_with_another(platform: Observation, word: Observation) -> bool:
    """Another process of the job failed, whose exit code the platform tells: that this one was stopped is no reason."""
    was_stopped = word.signal in _STOPS or word.exit_code in {128 + number for number in _STOPS}
    is_anothers = platform.exit_code not in {None, 0, *(128 + number for number in _STOPS)}
    return platform.state is JobState.FAILED and was_stopped and is_anothers


def _both(platform: Observation, word: Observation) -> str:
    return f"the platform says {platform.state} ({explain(platform)}), the runner says {explain(word)}"
