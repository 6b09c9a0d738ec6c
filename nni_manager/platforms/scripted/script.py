"""The script: the rule of a job, and its times by that rule. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from nni_manager.domain.job import JobSpec
from nni_manager.platforms.scripted.config import Match, Rule

#: Default duration of a simulated job, in seconds.
DEFAULT_DURATION_S = 1.0
NONE, PROCESS, EXTERNAL = "none", "process", "external"


def rule_for(rules: Sequence[Rule], spec: JobSpec) -> Rule:
    """The first rule that matches a job, else an empty rule."""
    return next((rule for rule in rules if rule.match is None or _fits(rule.match, spec)), Rule())


def _fits(match: Match, spec: JobSpec) -> bool:
    return (
        match.sequence in (None, spec.sequence_id)
        and match.attempt in (None, spec.attempt)
        and (match.every is None or (spec.sequence_id + 1) % match.every == 0)
    )


def is_platform_end(rule: Rule) -> bool:
    """Whether the platform itself ends the job."""
    return rule.lost or rule.preempted or rule.cancelled_by_person


def says_exit(rule: Rule) -> bool:
    return rule.exit_code is not None or rule.signal is not None


def end_after_s(rule: Rule, launch: str) -> float | None:
    """Seconds after its start at which the script ends a job; None: it does not, its process does."""
    if launch == NONE:
        return DEFAULT_DURATION_S if rule.duration is None else rule.duration
    if is_platform_end(rule):
        return rule.duration or 0.0
    return rule.duration if says_exit(rule) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line that a pretended job reports, and when after its start, in milliseconds."""

    after_ms: int
    text: str


def lines(rule: Rule) -> tuple[Line, ...]:
    """The lines that a job reports: intermediate results evenly over the duration, the final one at its end."""
    duration_ms = round((end_after_s(rule, NONE) or 0.0) * 1000)
    step = duration_ms / (len(rule.results) + 1)
    found = [
        Line(after_ms=round(step * (place + 1)), text=json.dumps({"type": "intermediate", "value": value}))
        for place, value in enumerate(rule.results)
    ]
    if rule.result is not None:
        found.append(Line(after_ms=duration_ms, text=json.dumps({"type": "final", "value": rule.result})))
    return tuple(found)
