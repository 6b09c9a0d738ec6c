"""Posts of trial runners, validated field by field, and the memory for those that are being received.

A runner is untrusted: a post may be wrong, huge or malicious, and must not harm anything but its own trial.
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

#: The greatest integer that every JSON parser keeps.
_MOST = 2**53
#: Most posts in one request.
_MOST_TOGETHER = 16
#: Most characters of a sentence about undelivered results.
_SENTENCE_CHARACTERS = 300


def parse(data: bytes) -> Json:
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        raise InvalidInput("the body is no JSON") from None
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
        raise InvalidInput(f"posts: each is of one of the routes {', '.join(known)}")
    if not isinstance(body, dict):
        raise InvalidInput("posts: the body of each must be a JSON object")
    return route, body


def is_whole_end(found: Sequence[tuple[str, Json]]) -> bool:
    """Whether the posts are results followed by the end."""
    return [route for route, _ in found[:2]] == ["metrics", "status"] and found[1][1].get("event") == "exited"


def is_whole(body: Json, answer: Json) -> bool:
    """Whether a post is stored completely, by its answer."""
    return "end" not in body or answer.get("offset", 0) >= body["end"]


def registration(body: Json) -> tuple[str | None, str, dict[str, int] | None]:
    """A registration: (version, channel, bytes per outbox that the container found; None: not given)."""
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
        raise InvalidInput("exitCode or signal: one of them must be given")
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
        raise InvalidInput("lines: must be a list of texts")
    require_text("lines", "".join(lines))
    outbox = _text(body, "outbox")
    if not is_outbox(outbox):
        raise InvalidInput(f"outbox: must begin with {protocol.OUTBOX_FOLDER}/, or be {protocol.METRICS_FILE}")
    start, end = _required(body, "start"), _required(body, "end")
    if end - start < len(lines) or end < start:
        raise InvalidInput("end: must be behind start by a byte a line at least")
    return outbox, start, end, lines


def piece(body: Json) -> tuple[str, int, bytes, str]:
    """A part of a log: (file, offset, data, the job's process that wrote it). The last is empty for the reporting
    one."""
    return _text(body, "file"), _required(body, "offset"), _text(body, "data").encode(), _text(body, "source")


def _sizes(body: Json) -> dict[str, int]:
    outboxes = body.get("outboxes")
    if outboxes is None:
        return {}
    if not isinstance(outboxes, dict):
        raise InvalidInput("outboxes: must be an object of names and their sizes")
    # invalid names are not waited for, nor outboxes above the limit
    names = [name for name in outboxes if is_outbox(name)][: protocol.MOST_OUTBOXES]
    return {name: _required(outboxes, name, "outboxes") for name in names}


def _sentences(body: Json) -> list[str]:
    """The runner's sentences. An invalid one is left out: the end must not be refused because of it."""
    given = body.get("undelivered")
    texts = [text for text in given if isinstance(text, str)] if isinstance(given, list) else []
    return [
        "".join(character if character.isprintable() else "?" for character in text)[:_SENTENCE_CHARACTERS]
        for text in texts[: protocol.MAX_SENTENCES]
    ]


def _text(body: Json, name: str) -> str:
    """The text of a field; empty: missing or null."""
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


#: Most bytes of a small body, such as a usual post of lines.
SMALL_BYTES = 512 * 1024
#: Most simultaneous bodies of one attempt, one for each of its reporting processes.
MOST_BODIES = 64


class BodyMemory:
    """Limits the memory for bodies that are being received. `size`: most bytes of all large bodies together.

    Received bytes count, not announced ones. Small bodies are always accepted, so that no heartbeat waits for another
    runner's results.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._taken = 0
        self._bodies: Counter[str] = Counter()
        #: Attempts with a large body that is being received.
        self._large: set[str] = set()

    @contextmanager
    def body(self, attempt: str) -> Iterator[Body]:
        """A context in which a body is received and used. Raises TooBusy."""
        if self._bodies[attempt] >= MOST_BODIES:
            raise TooBusy(f"{MOST_BODIES} posts of this attempt are being taken in; this one is taken in a second")
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
        """Counts the attempt's body as large from now on. Raises TooBusy."""
        if attempt in self._large:
            raise TooBusy("another large post of this attempt is being taken in; this one is taken in a second")
        self._large.add(attempt)

    def take(self, size: int, held: int) -> None:
        """Reserves `size` bytes. `held`: bytes the body has already; a single body always has room. Raises TooBusy."""
        if self._taken + size > self._size and self._taken > held:
            raise TooBusy("more comes in than can be taken in at a time; it is taken in a second")
        self._taken += size

    def give_back(self, attempt: str, held: int) -> None:
        """Releases the attempt's large body."""
        self._large.discard(attempt)
        self._taken -= held


class Body:
    """One body while it is received."""

    def __init__(self, memory: BodyMemory, attempt: str) -> None:
        self._memory = memory
        self._attempt = attempt
        self._size = 0
        self._is_large = False
        #: Bytes reserved.
        self._held = 0

    def grow(self, size: int) -> None:
        """Counts received bytes. Raises TooBusy: the rest of the body must not be read then."""
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
