"""Final results, and whether they are comparable."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from nni_manager.domain.metrics import default_number

#: The default of `maxUnusableResults`.
MAX_UNUSABLE = 5


class Usability(StrEnum):
    """Whether a trial's final result can be compared with others."""

    USABLE = "USABLE"
    #: It has the numbers, but NaN or infinity among them.
    NOT_FINITE = "NOT_FINITE"
    #: It lacks a number, or there is none.
    UNUSABLE = "UNUSABLE"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedResult:
    """The results that a trial reported."""

    #: The final result, JSON as reported; None: it reported none.
    final: str | None
    #: Number of intermediate results.
    intermediates: int = 0

    @property
    def value(self) -> object:
        """The final result, or None. Text that is not JSON stays text."""
        try:
            return None if self.final is None else json.loads(self.final)
        except (ValueError, RecursionError):
            return self.final

    def usability(self, objectives: Iterable[str]) -> Usability:
        """Whether the result is comparable. `objectives`: the required keys; empty: `default`."""
        if self.final is None:
            return Usability.UNUSABLE
        value = self.value
        given = value if isinstance(value, Mapping) else {"default": value}
        numbers = [default_number(given.get(key)) for key in (*objectives,) or ("default",)]
        if None in numbers:
            return Usability.UNUSABLE
        is_finite = all(number is not None and math.isfinite(number) for number in numbers)
        return Usability.USABLE if is_finite else Usability.NOT_FINITE
