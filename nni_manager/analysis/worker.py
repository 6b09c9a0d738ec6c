"""The child process that answers questions about trials: ``python -m nni_manager.analysis.worker``.

A request is a line of JSON on standard input: ``{"id", "question", "query", "path", "revision"}``. Its answer is a line
of JSON on standard output, ``{"id", "bytes", "settled"}`` or ``{"id", "bytes", "refused"}``, and that many bytes of
text. It answers one after the other, first what needs no parameters, which take longest to read the first time, and
curves, which are read for each filter, after what is in memory: meanwhile the browser draws. Its first answers, which
are of a page's first screen, have the daemon's own priority, for two seconds at most; then it gives way to all else. It
ends with its input, also in the middle of an answer.
"""

from __future__ import annotations

import gc
import json
import os
import queue
import sqlite3
import sys
import threading
import time
import traceback
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import parse_qsl

from nni_manager.analysis.columns.trial_set import TrialSet
from nni_manager.analysis.json_text import encoded
from nni_manager.analysis.query import Query
from nni_manager.analysis.questions import answerer, needs_parameters
from nni_manager.analysis.selection import Asked
from nni_manager.domain.errors import InvalidInput, NotFound, StoreCorrupt, StoreError
from nni_manager.store.connection import classified, connect_readonly

#: Added to the priority value of the daemon: trials on this machine and the daemon come first.
_NICENESS = 5
#: Linux changes one session's priority in so many seconds for all who are not root.
_GROUP_PAUSE_S = 0.11
#: Seconds without a question after which the first screen of a page has asked all that it does.
_PAUSE_S = 0.5
#: Seconds from the first question within which the first screen of a page is there.
_FIRST_S = 2.0
#: Least rank of questions that take parameters.
_PARAMETERS_RANK = 2
#: Allocated minus freed objects that trigger a collection: what is parsed at once is many short-lived objects.
_YOUNG_OBJECTS = 200_000
#: Importance is computed in a thread of its own. SQLite lets other threads run at each row, and by Python's default the
#: row would come 5 ms later: a quarter of a second for a page of the table.
_SWITCH_S = 0.0002

#: (rank, order of arrival, request).
Requests = queue.PriorityQueue[tuple[int, int, dict[str, Any]]]


def main() -> None:
    """Answers until standard input ends."""
    gc.set_threshold(_YOUNG_OBJECTS)
    sys.setswitchinterval(_SWITCH_S)
    requests: Requests = queue.PriorityQueue()
    threading.Thread(target=_read, args=(requests,), name="requests", daemon=True).start()
    kept = KeptExperiments()
    _answer_first(kept, requests)
    while True:
        _answer_next(kept, requests.get()[-1])


def _answer_first(kept: KeptExperiments, requests: Requests) -> None:
    """Answers what the first screen of a page asks, up to the first question that takes parameters, or that is waited
    for in vain; gives way then, and at the latest when a page has been there for a while: that of an experiment at work
    asks without a pause."""
    place, _, request = requests.get()
    end_s = time.monotonic() + _FIRST_S
    while place < _PARAMETERS_RANK and time.monotonic() < end_s:
        _answer_next(kept, request)
        try:
            place, _, request = requests.get(timeout=_PAUSE_S)
        except queue.Empty:
            return _give_way()
    _give_way()
    _answer_next(kept, request)


def _answer_next(kept: KeptExperiments, request: dict[str, Any]) -> None:
    header, text = respond(kept, request)
    _write(sys.stdout.buffer, json.dumps({**header, "bytes": len(text)}).encode() + b"\n" + text)


def _give_way() -> None:
    """Where Linux shares processors among sessions first, as on most desktops, a process's own priority counts only
    inside its session."""
    niceness = str(os.nice(_NICENESS))
    group = Path("/proc/self/autogroup")
    if os.getsid(0) != os.getpid():
        return  # others are in the session
    with suppress(OSError):  # there is no such file, or a container may not write it
        try:
            group.write_text(niceness, encoding="ascii")
        except BlockingIOError:
            time.sleep(_GROUP_PAUSE_S)
            group.write_text(niceness, encoding="ascii")


def rank(request: dict[str, Any]) -> int:
    """The least is answered first."""
    try:
        question = str(request["question"])
        return _PARAMETERS_RANK * needs_parameters(question, _query(request)) + (question == "curves")
    except InvalidInput:  # which is said at once
        return 0


def respond(kept: KeptExperiments, request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    """The header and the text of the answer to a request."""
    try:
        answer = _answer(kept, request)
        settled = "computing" not in (answer.get("state"), answer.get("importanceState"))
        return {"id": request["id"], "settled": settled}, encoded(answer)
    except (InvalidInput, NotFound, StoreError) as error:
        return {"id": request["id"], "refused": type(error).__name__}, _bytes(str(error))
    except Exception:
        return {"id": request["id"], "refused": "fault"}, _bytes(traceback.format_exc())


def _answer(kept: KeptExperiments, request: dict[str, Any]) -> dict[str, Any]:
    query = _query(request)
    question, revision = request["question"], request["revision"]
    parameters = needs_parameters(question, query)
    with kept.read(request["path"], revision, parameters=parameters) as (trials, connection):
        query = replace(query, key=query.key or trials.usual_key)
        asked = Asked(trials=trials, query=query, connection=connection, now_ms=int(time.time() * 1000))
        return {"revision": revision, "key": query.key, **answerer(question)(asked)}


#: Most experiments, and most bytes of all but the one that is asked about.
_MOST = 8
_MOST_BYTES = 256 << 20


class KeptExperiments:
    """The columns of experiments by the path of their databases; the least recently asked go first."""

    def __init__(self) -> None:
        #: Path → revision and columns; the most recently asked is last.
        self._kept: OrderedDict[str, tuple[str, TrialSet]] = OrderedDict()

    @contextmanager
    def read(self, path: str, revision: str, *, parameters: bool) -> Iterator[tuple[TrialSet, sqlite3.Connection]]:
        """The columns as of `revision` or later, and a connection that sees the same state. `parameters`: they are
        needed, too. Raises StoreError."""
        try:
            with closing(connect_readonly(Path(path))) as connection:
                connection.execute("BEGIN")
                yield self._brought_up(path, revision, connection, parameters=parameters), connection
        except sqlite3.DatabaseError as error:
            self._kept.pop(path, None)
            raise classified(Path(path), error) from error
        self._forget_others()

    def _brought_up(self, path: str, revision: str, connection: sqlite3.Connection, *, parameters: bool) -> TrialSet:
        known, trials = self._kept.pop(path, ("", TrialSet()))
        # for the same revision the connection may see more than was read before, as trials go on
        if known != revision or not trials.has_all(connection):
            trials = _refreshed(trials, connection, path)
        if parameters:
            trials.read_parameters(connection)
        self._kept[path] = revision, trials
        return trials

    def _forget_others(self) -> None:
        while len(self._kept) > 1 and (len(self._kept) > _MOST or self._nbytes > _MOST_BYTES):
            self._kept.popitem(last=False)

    @property
    def _nbytes(self) -> int:
        return sum(trials.nbytes for _, trials in self._kept.values())


def _refreshed(trials: TrialSet, connection: sqlite3.Connection, path: str) -> TrialSet:
    """The columns with what changed; read anew where they do not fit together. Raises StoreCorrupt."""
    try:
        trials.refresh(connection)
        return trials
    except (LookupError, ValueError):  # another content under the same path
        trials = TrialSet()
    try:
        trials.refresh(connection)
        return trials
    except (LookupError, ValueError, TypeError) as error:
        raise StoreCorrupt(f"the database {path} cannot be read ({error}); restore it from a backup") from error


def _query(request: dict[str, Any]) -> Query:
    """Raises InvalidInput."""
    return Query.parse(parse_qsl(request["query"], keep_blank_values=True))


def _read(requests: Requests) -> None:
    for number, line in enumerate(sys.stdin.buffer):
        request = json.loads(line)
        requests.put((rank(request), number, request))
    os._exit(0)  # the daemon is gone, or wants this end: nothing is left to be saved


def _write(file: BinaryIO, data: bytes) -> None:
    try:
        file.write(data)
        file.flush()
    except BrokenPipeError:
        os._exit(0)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")


if __name__ == "__main__":
    main()
