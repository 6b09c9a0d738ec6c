"""Two witnesses of one attempt: the platform that ran the job, and the runner inside it. What follows from both.

The runner knows how the user's command ended; the platform knows what it did to the job. Where they disagree, the
platform is believed about its own deeds (preempted, lost, out of memory) and the runner about the command.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from nni_manager.domain.job import JobReport, JobState
from nni_manager.domain.trial import explain

#: The platform's own deeds: a command that ended by a signal was ended by them.
PLATFORM_DEEDS = frozenset({JobState.PREEMPTED, JobState.LOST})


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerWord:
    """What a runner posted about the end of the user's command."""

    exit_code: int | None
    signal: int | None
    stderr_tail: str
    started_ms: int | None
    ended_ms: int | None
    #: Name → bytes each outbox had in the end.
    outboxes: Mapping[str, int]
    #: What could not be read of its logs; else empty.
    doubt: str = ""

    @staticmethod
    def parse(text: str) -> RunnerWord:
        """As the store keeps it: the JSON of the runner's post."""
        word: dict[str, Any] = json.loads(text)
        return RunnerWord(
            exit_code=word.get("exitCode"), signal=word.get("signal"), stderr_tail=word.get("stderrTail") or "",
            started_ms=word.get("startedMs"), ended_ms=word.get("endedMs"), outboxes=word.get("outboxes") or {},
            doubt=word.get("doubt") or "",
        )  # fmt: skip

    def report(self) -> JobReport:
        return JobReport(
            state=JobState.SUCCEEDED if self.exit_code == 0 else JobState.FAILED, exit_code=self.exit_code,
            signal=self.signal, stderr_tail=self.stderr_tail, started_ms=self.started_ms, ended_ms=self.ended_ms,
        )  # fmt: skip


def possible_ms(moment_ms: int | None, intended_ms: int, now_ms: int) -> int | None:
    """`moment_ms` by the clock of another machine, which may be wrong: nothing of an attempt happened before it was
    decided on (`intended_ms`), and nothing after now. All are milliseconds since the epoch."""
    return None if moment_ms is None else min(max(moment_ms, intended_ms), now_ms)


def with_possible_times(word: str, intended_ms: int, now_ms: int) -> str:
    """The JSON of a runner's word about the end, see `possible_ms`."""
    entry: dict[str, Any] = json.loads(word)
    told = [name for name in ("startedMs", "endedMs") if name in entry]
    times = {name: possible_ms(entry[name], intended_ms, now_ms) for name in told}
    return json.dumps({**entry, **times})


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    report: JobReport
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


def weigh(platform: JobReport | None, runner: RunnerWord | None) -> Finding | None:
    """What both say of an attempt's end; None while neither says that it has ended."""
    if runner is None:
        return None if platform is None else Finding(report=platform)
    word = runner.report()
    if platform is None or platform.state is JobState.CANCELLED:
        return Finding(report=word)
    if platform.state in PLATFORM_DEEDS:
        believed = word if word.state is JobState.SUCCEEDED else platform
    else:
        believed = replace(word, reason=platform.reason, message="")
    fits = (platform.state is JobState.SUCCEEDED) == (word.state is JobState.SUCCEEDED)
    return Finding(report=believed, disagreement="" if fits else _both(platform, word))


def _both(platform: JobReport, word: JobReport) -> str:
    return f"the platform says {platform.state} ({explain(platform)}), the runner says {explain(word)}"
