"""Validates posts of trial runners, and limits the memory for bodies.

Runners are untrusted: a post may be wrong, huge or malicious, and must harm at most its own trial.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from nni_manager.domain.errors import InvalidInput, TooBusy
from nni_manager.domain.text import require_text
from nni_manager.domain.version import MOST_CHARACTERS, is_legible
from trial_runner import protocol
from trial_runner.wire.outbox_files import is_outbox

Json = dict[str, Any]

#: The greatest integer that every JSON parser reads exactly.
_MOST = 2**53
#: Maximum number of posts in a request.
_MOST_TOGETHER = 16
#: Maximum length of a message about undelivered results.
_SENTENCE_CHARACTERS = 300


def parse(data: bytes) -> Json:
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        raise InvalidInput("the body is not JSON") from None
    if not isinstance(body, dict):
        raise InvalidInput("the body must be a JSON object")
    return body


def parts(body: Json, known: Collection[str]) -> list[tuple[str, Json]]:
    """(route, body) of each combined post; `known`: the allowed routes."""
    found = body.get("posts")
    if not isinstance(found, list) or not 0 < len(found) <= _MOST_TOGETHER:
        raise InvalidInput(f"posts: must be a list of 1 to {_MOST_TOGETHER} posts")
    return [_one_of(part, known) for part in found]


def _one_of(part: object, known: Collection[str]) -> tuple[str, Json]:
    route, body = (part.get("route"), part.get("body")) if isinstance(part, dict) else (None, None)
    if not isinstance(route, str) or route not in known:
        raise InvalidInput(f"posts: each must have one of the routes {', '.join(known)}")
    if not isinstance(body, dict):
        raise InvalidInput("posts: the body of each must be a JSON object")
    return route, body


def is_whole_end(found: Sequence[tuple[str, Json]]) -> bool:
    """Whether the posts are results followed by the end of the trial."""
    return [route for route, _ in found[:2]] == ["metrics", "status"] and found[1][1].get("event") == "exited"


def is_whole(body: Json, answer: Json) -> bool:
    """Whether a post was stored completely, according to its answer."""
    return "end" not in body or answer.get("offset", 0) >= body["end"]


def registration(body: Json) -> tuple[str | None, str, dict[str, int] | None]:
    """A registration: (version or None, channel, size of each outbox in the container in bytes, or None)."""
    version, channel = _text(body, "version"), _text(body, "channel") or protocol.PUSH
    if channel not in (protocol.PUSH, protocol.PULL):
        raise InvalidInput(f"channel: must be {protocol.PUSH} or {protocol.PULL}")
    if not is_legible(version):
        raise InvalidInput(f"version: must be at most {MOST_CHARACTERS} printable characters")
    return version.strip() or None, channel, _sizes(body) if "outboxes" in body else None


def started(body: Json) -> tuple[int | None, int | None]:
    """(start of the command, time of the post), in milliseconds by the runner's clock."""
    return _count(body, "startedMs"), _count(body, "nowMs")


def exit_report(body: Json) -> Json:
    """The stored fields of a runner's report of the end."""
    exit_code, signal = _count(body, "exitCode"), _count(body, "signal")
    if exit_code is None and signal is None:
        raise InvalidInput("exitCode or signal: one of them is required")
    return {
        "exitCode": exit_code,
        "signal": signal,
        "stderrTail": _text(body, "stderrTail")[-protocol.MAX_STDERR_TAIL :],
        "startedMs": _count(body, "startedMs"),
        "endedMs": _count(body, "endedMs"),
        "nowMs": _count(body, "nowMs"),
        "outboxes": _sizes(body),
        "undelivered": _sentences(body),
        "wasStarted": body.get("wasStarted") is not False,
    }


def stretch(body: Json) -> tuple[str, int, int, list[str]]:
    """Complete lines of one outbox between two byte offsets: (outbox, start, end, lines)."""
    lines = body.get("lines")
    if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
        raise InvalidInput("lines: must be a list of strings")
    require_text("lines", "".join(lines))
    outbox = _text(body, "outbox")
    if not is_outbox(outbox):
        raise InvalidInput(f"outbox: must begin with {protocol.OUTBOX_FOLDER}/, or be {protocol.METRICS_FILE}")
    start, end = _required(body, "start"), _required(body, "end")
    if end - start < len(lines) or end < start:
        raise InvalidInput("end: must exceed start by at least one byte per line")
    return outbox, start, end, lines


def piece(body: Json) -> tuple[str, int, bytes, str]:
    """A part of a log: (file, offset, data, the writing process of the job, or empty for the reporting one)."""
    return _text(body, "file"), _required(body, "offset"), _text(body, "data").encode(), _text(body, "source")


def _sizes(body: Json) -> dict[str, int]:
    outboxes = body.get("outboxes")
    if outboxes is None:
        return {}
    if not isinstance(outboxes, dict):
        raise InvalidInput("outboxes: must be an object of names and their sizes")
    # do not wait for invalid names or for outboxes above the limit
    names = [name for name in outboxes if is_outbox(name)][: protocol.MOST_OUTBOXES]
    return {name: _required(outboxes, name, "outboxes") for name in names}


def _sentences(body: Json) -> list[str]:
    """The runner's messages, without invalid ones, which must not prevent the report of the end."""
    given = body.get("undelivered")
    texts = [text for text in given if isinstance(text, str)] if isinstance(given, list) else []
    return [
        "".join(character if character.isprintable() else "?" for character in text)[:_SENTENCE_CHARACTERS]
        for text in texts[: protocol.MAX_SENTENCES]
    ]


def _text(body: Json, name: str) -> str:
    """The text of a field, or empty if it is missing or null."""
    value = body.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InvalidInput(f"{name}: must be text")
    require_text(name, value)
    return value


def _count(body: Json, name: str, shown: str = "") -> int | None:
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _MOST:
        raise InvalidInput(f"{shown or name}: must be a whole number of at least 0")
    return value


def _required(body: Json, name: str, shown: str = "") -> int:
    value = _count(body, name, shown)
    if value is None:
        raise InvalidInput(f"{shown or name}: must be a whole number of at least 0")
    return value


#: Maximum size of a small body, such as a usual post of lines, in bytes.
SMALL_BYTES = 512 * 1024
#: Maximum number of simultaneous bodies of an attempt, one for each reporting process.
MOST_BODIES = 64


class BodyMemory:
    """Limit of the memory for bodies. `size`: maximum bytes of all large bodies together.

    Received bytes count, not announced ones. Small bodies are always accepted, so that no heartbeat waits for another
    runner's results.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._taken = 0
        self._bodies: Counter[str] = Counter()
        #: Attempts that are sending a large body.
        self._large: set[str] = set()

    @contextmanager
    def body(self, attempt: str) -> Iterator[Body]:
        """A context for receiving and using a body. Raises TooBusy."""
        if self._bodies[attempt] >= MOST_BODIES:
            raise TooBusy(f"{MOST_BODIES} posts of this attempt are being received; repeat this one in a second")
        self._bodies[attempt] += 1
        body = Body(self, attempt)
        try:
            yield body
        finally:
            body.end()
            self._bodies[attempt] -= 1
            if not self._bodies[attempt]:
                del self._bodies[attempt]

    def enlarge(self, attempt: str) -> None:
        """Count the attempt's body as large from now on. Raises TooBusy."""
        if attempt in self._large:
            raise TooBusy("another large post of this attempt is being received; repeat this one in a second")
        self._large.add(attempt)

    def take(self, size: int, held: int) -> None:
        """Reserve `size` bytes. `held`: bytes of the body so far; a single body always fits. Raises TooBusy."""
        if self._taken + size > self._size and self._taken > held:
            raise TooBusy("too many posts are being received; repeat this one in a second")
        self._taken += size

    def give_back(self, attempt: str, held: int) -> None:
        """Release the attempt's large body."""
        self._large.discard(attempt)
        self._taken -= held


class Body:
    """A body while it is received."""

    def __init__(self, memory: BodyMemory, attempt: str) -> None:
        self._memory = memory
        self._attempt = attempt
        self._size = 0
        self._is_large = False
        #: Bytes reserved.
        self._held = 0

    def grow(self, size: int) -> None:
        """Count received bytes. Raises TooBusy; the rest of the body must then not be read."""
        self._size += size
        if self._size <= SMALL_BYTES:
            return
        if not self._is_large:
            self._memory.enlarge(self._attempt)
            self._is_large = True
        more = self._size - self._held
        self._memory.take(more, self._held)
        self._held += more

    def end(self) -> None:
        if self._is_large:
            self._memory.give_back(self._attempt, self._held)
