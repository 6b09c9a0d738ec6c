"""The clock: durations and the order of things are told by it, and compared between machines."""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Iterator

from nni_manager.app.doctor.finding import CheckFinding, failure, ok, warning

#: Seconds that the two clocks are watched for, and that they may go apart meanwhile.
_WATCHED_S, _APART_S = 0.2, 0.05
#: The year before which this program did not exist.
_FIRST_YEAR = 2024
#: What `adjtimex` answers when nothing keeps the clock right.
_UNSYNCHRONISED = 5
#: `struct timex`, and more.
_TIMEX_BYTES = 512


def look() -> Iterator[CheckFinding]:
    now = time.gmtime()
    if now.tm_year < _FIRST_YEAR:
        yield failure("clock", f"it says {time.strftime('%Y-%m-%d', now)}, which is past", "set the clock")
        return
    apart_s = _drift()
    if apart_s > _APART_S:
        sentence = f"it jumped by {apart_s:.2f} s within {_WATCHED_S:g} s; durations of trials will be wrong"
        yield warning("clock", sentence, "see what sets the clock: two time services may be at odds")
    elif _is_synchronised() is False:
        sentence = "it runs evenly, and the kernel does not know that anything keeps it right"
        yield warning("clock", sentence, "run a time service, if trials run on several machines")
    else:
        yield ok("clock", f"it runs evenly; {time.strftime('%Y-%m-%d %H:%M:%S', now)} UTC")


def _drift() -> float:
    """Seconds by which the wall's clock and the one that only goes forward went apart."""
    wall_s, steady_s = time.time(), time.monotonic()
    time.sleep(_WATCHED_S)
    return abs((time.time() - wall_s) - (time.monotonic() - steady_s))


def _is_synchronised() -> bool | None:
    """Whether the kernel says that its clock is synchronised; None when it does not say."""
    if sys.platform != "linux":
        return None
    try:
        answer = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))  # all zero: only asks
    except (OSError, AttributeError):
        return None
    return None if answer < 0 else bool(answer != _UNSYNCHRONISED)
