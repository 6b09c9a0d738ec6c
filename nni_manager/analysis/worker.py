"""The child process that answers queries about trials: ``python -m nni_manager.analysis.worker``.

A request is a line of JSON on standard input: ``{"id", "question", "query", "path", "revision"}``. Its answer is a line
of JSON on standard output, ``{"id", "bytes", "settled"}`` or ``{"id", "bytes", "refused"}``, and that many bytes of
text.

It answers one request at a time. Queries without parameters, which take longest to read the first time, come first.
Curves, which are read for each filter, come after data in memory. In the meantime, the browser draws. The first
answers, for a page's first screen, have the daemon's priority for at most two seconds; later ones have a low priority.
The process ends with its input, even during an answer.
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
#: Seconds between changes of a session's priority that Linux allows users other than root.
_GROUP_PAUSE_S = 0.11
#: Seconds without a query after which a page's first screen is complete.
_PAUSE_S = 0.5
#: Seconds from the first query until a page's first screen is complete.
_FIRST_S = 2.0
#: Lowest rank of queries that need parameters.
_PARAMETERS_RANK = 2
#: Allocated minus freed objects that trigger a collection: parsing creates many short-lived objects.
_YOUNG_OBJECTS = 200_000
#: Importance is computed in a separate thread. SQLite lets other threads run at each row, and with Python's default,
#: the row would come 5 ms later: a quarter of a second for a page of the table.
_SWITCH_S = 0.0002

#: (rank, order of arrival, request).
Requests = queue.PriorityQueue[tuple[int, int, dict[str, Any]]]


def main() -> None:
    """Answer until standard input ends."""
    gc.set_threshold(_YOUNG_OBJECTS)
    sys.setswitchinterval(_SWITCH_S)
    requests: Requests = queue.PriorityQueue()
    threading.Thread(target=_read, args=(requests,), name="requests", daemon=True).start()
    kept = KeptExperiments()
    _answer_first(kept, requests)
    while True:
        _answer_next(kept, requests.get()[-1])


def _answer_first(kept: KeptExperiments, requests: Requests) -> None:
    """Answer the queries of a page's first screen with the daemon's priority, then lower the priority.

    The first screen ends with the first query that takes parameters, after a pause, or after some time: the page of an
    open experiment sends queries without a pause.
    """
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
    """Lower the priority of the process and its session.

    On most desktops, Linux shares processors among sessions first; a process's priority counts only in its session.
    """
    niceness = str(os.nice(_NICENESS))
    group = Path("/proc/self/autogroup")
    if os.getsid(0) != os.getpid():
        return  # others are in the session
    with suppress(OSError):  # the file does not exist, or a container may not write it
        try:
            group.write_text(niceness, encoding="ascii")
        except BlockingIOError:
            time.sleep(_GROUP_PAUSE_S)
            group.write_text(niceness, encoding="ascii")


def rank(request: dict[str, Any]) -> int:
    """The rank of a request; the lowest is answered first."""
    try:
        question = str(request["question"])
        return _PARAMETERS_RANK * needs_parameters(question, _query(request)) + (question == "curves")
    except InvalidInput:  # reported at once
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


#: Maximum number of experiments, and of bytes of all except the requested one.
_MOST = 8
_MOST_BYTES = 256 << 20


class KeptExperiments:
    """The columns of experiments by the path of their databases, in an LRU cache."""

    def __init__(self) -> None:
        #: Path → revision and columns; the most recently asked is last.
        self._kept: OrderedDict[str, tuple[str, TrialSet]] = OrderedDict()

    @contextmanager
    def read(self, path: str, revision: str, *, parameters: bool) -> Iterator[tuple[TrialSet, sqlite3.Connection]]:
        """The columns as of `revision` or later, and a connection that sees the same state.

        `parameters`: load them, too. Raises StoreError.
        """
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
    """The columns with changes, or read again if they are inconsistent. Raises StoreCorrupt."""
    try:
        trials.refresh(connection)
        return trials
    except (LookupError, ValueError):  # other content under the same path
        trials = TrialSet()
    try:
        trials.refresh(connection)
        return trials
    except (LookupError, ValueError, TypeError) as error:
        raise StoreCorrupt(f"the database {path} cannot be read ({error}); restore it from a backup") from error


def _query(request: dict[str, Any]) -> Query:
    """The query of a request. Raises InvalidInput."""
    return Query.parse(parse_qsl(request["query"], keep_blank_values=True))


def _read(requests: Requests) -> None:
    for number, line in enumerate(sys.stdin.buffer):
        request = json.loads(line)
        requests.put((rank(request), number, request))
    os._exit(0)  # the daemon has ended, or requested this end; there is nothing to save


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
