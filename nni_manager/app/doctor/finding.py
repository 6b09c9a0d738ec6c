"""The result of a check."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class CheckOutcome(StrEnum):
    #: The check passed.
    OK = "OK"
    #: An optional part is not installed.
    NOTE = "NOTE"
    #: It works, but perhaps not for long or not for all users.
    WARN = "WARN"
    #: Experiments cannot run.
    FAIL = "FAIL"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckFinding:
    """One line of the report."""

    verdict: CheckOutcome
    #: The subject of the check, in one or two words.
    check: str
    sentence: str
    #: What to do; empty: nothing.
    advice: str = ""


def ok(check: str, sentence: str) -> CheckFinding:
    return CheckFinding(verdict=CheckOutcome.OK, check=check, sentence=sentence)


def note(check: str, sentence: str, advice: str) -> CheckFinding:
    return CheckFinding(verdict=CheckOutcome.NOTE, check=check, sentence=sentence, advice=advice)


def warning(check: str, sentence: str, advice: str) -> CheckFinding:
    return CheckFinding(verdict=CheckOutcome.WARN, check=check, sentence=sentence, advice=advice)


def failure(check: str, sentence: str, advice: str) -> CheckFinding:
    return CheckFinding(verdict=CheckOutcome.FAIL, check=check, sentence=sentence, advice=advice)


def told(error: Exception) -> tuple[str, str]:
    """(problem, advice) of an error whose text separates them by a semicolon."""
    sentence, _, advice = str(error).partition("; ")
    return sentence, advice
