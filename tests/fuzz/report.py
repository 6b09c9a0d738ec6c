"""Results of the calls: number, durations and findings."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

#: Maximum duration of an answer in seconds.
LONGEST_S = 5.0
#: Texts that must not occur in an answer.
_TRACES = ("Traceback (most recent call last)", '.py", line ', "starlette/", "starlette.", "uvicorn/", "uvicorn.")
#: Maximum number of examples per kind.
_KEPT = 3


@dataclass
class Report:
    """Report of one group of routes."""

    group: str
    calls: int = 0
    slowest_s: float = 0.0
    statuses: Counter[int] = field(default_factory=Counter)
    #: Kind → examples.
    problems: dict[str, list[str]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def take(self, request: str, status: int, body: str, seconds: float) -> None:
        """Record an answer. `request`: its request."""
        self.calls += 1
        self.statuses[status] += 1
        self.slowest_s = max(self.slowest_s, seconds)
        if status >= 500:
            self.complain(f"status {status}", f"{request} → {body[:300]}")
        if seconds > LONGEST_S:
            self.complain("slow", f"{request}: {seconds:.1f} s")
        for trace in _TRACES:
            if trace in body:
                self.complain("traceback", f"{request} → {body[:600]}")

    def complain(self, kind: str, example: str) -> None:
        self.counts[kind] += 1
        kept = self.problems.setdefault(kind, [])
        if len(kept) < _KEPT:
            kept.append(example)

    def __str__(self) -> str:
        statuses = " ".join(f"{status}:{number}" for status, number in sorted(self.statuses.items()))
        lines = [f"{self.group:<12} {self.calls:>6} calls, slowest {self.slowest_s:.2f} s, {statuses}"]
        for kind, examples in self.problems.items():
            lines += [f"  {kind} ({self.counts[kind]} times)", *(f"    {example}" for example in examples)]
        return "\n".join(lines)
