"""Failures of one kind: trials that failed in the same way have the same key."""

from __future__ import annotations

import re

from nni_manager.domain.attempt import Observation
from nni_manager.domain.reason import Reason
from nni_manager.domain.text import last_line
from nni_manager.domain.trial import TrialStatus

#: Statuses of trials that failed, by their own code or by their platform.
FAILED_STATUSES = (TrialStatus.FAILED, TrialStatus.SYS_CANCELED)
#: ``/data/x.csv``, ``~/x``, ``data/x``, ``C:\\x``, the part of an address after its scheme.
_PATH = re.compile(r"(?:[A-Za-z]:\\|~?/|[\w.-]+/)[^\s'\"`,;()<>\[\]{}]*")
#: Numbers, hexadecimal addresses, IP addresses, and names that hold a digit, as ids do.
_NUMBER = re.compile(r"(?<![\w.])[-+]?\w*\d\w*(?:[.:+-]*\w*\d\w*)*")


def failure_key(status: TrialStatus, reason: Reason, report: Observation, trial_id: str) -> str:
    """The key of an ended trial; empty for one that did not fail.

    Cause, exit code or signal, and the last line of stderr (or, without one, the platform's sentence), with the trial's
    id, numbers, paths and addresses made alike: ``USER_CODE, exit code 1: ValueError: # is no rate``.
    """
    if status not in FAILED_STATUSES:
        return ""
    how = ", ".join(filter(None, (reason.value, _code(report))))
    words = _alike((last_line(report.stderr_tail) or last_line(report.message)).replace(trial_id, "#"))
    return f"{how}: {words}" if words else how


def _code(report: Observation) -> str:
    if report.signal is not None:
        return f"signal {report.signal}"
    return f"exit code {report.exit_code}" if report.exit_code is not None else ""


def _alike(words: str) -> str:
    return _NUMBER.sub("#", _PATH.sub("…", words))
