"""The process that has found the tests gives them to its forks, and reports what they tell."""

from __future__ import annotations

import multiprocessing
from collections import deque
from contextlib import suppress
from multiprocessing.connection import Connection, wait

import pytest

from tests.workers import worker
from tests.workers.groups import groups_of

#: Threads do not come along into a fork; there are none yet.
_FORK = multiprocessing.get_context("fork")
#: The worker that begins at the other end of the queue: tests that only compute use the processors while the long ones
#: wait for other processes.
_SHORT_FIRST = "w0"


class HandOut:
    """Of all tests of a session."""

    def __init__(self, session: pytest.Session) -> None:
        self._session = session
        self._queue = groups_of(session.items)
        self._workers: dict[Connection, _Worker] = {}

    def to(self, count: int) -> None:
        """As many workers. Returns when they have ended: nothing is left to do, or enough has failed."""
        shown = self._session.config.pluginmanager.getplugin("terminalreporter")
        shown.showfspath = False  # the files come in no order
        self._session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined] # or each fork would make its own
        try:
            for number in range(count):
                self._start(f"w{number}")
            while self._workers and not (self._session.shouldfail or self._session.shouldstop):
                for connection in wait(list(self._workers)):
                    assert isinstance(connection, Connection)
                    self._hear(connection)
        finally:
            self._end()

    def _start(self, name: str) -> None:
        ours, theirs = _FORK.Pipe()
        others = [*self._workers, ours]
        process = _FORK.Process(target=worker.run, args=(self._session, name, theirs, others), name=name)
        process.start()
        theirs.close()
        self._workers[ours] = _Worker(name, process)

    def _hear(self, connection: Connection) -> None:
        told = self._workers[connection]
        try:
            heard = connection.recv()
        except (EOFError, OSError):
            self._forget(connection)
            return
        if heard is None:
            group = self._next_for(told.name)
            told.pending.extend(group)
            with suppress(OSError):  # its end is heard next
                connection.send(group)
            return
        told.pending.popleft()
        self._report(told, heard)

    def _next_for(self, name: str) -> list[int]:
        """Empty: none is left."""
        if not self._queue:
            return []
        return self._queue.pop() if name == _SHORT_FIRST else self._queue.popleft()

    def _report(self, told: _Worker, heard: worker.Told) -> None:
        hook = self._session.config.hook
        for data in heard.reports:
            report = hook.pytest_report_from_serializable(config=self._session.config, data=data)
            report.worker_id = told.name
            hook.pytest_runtest_logreport(report=report)
        for warning in heard.warnings:
            hook.pytest_warning_recorded.call_historic(kwargs=warning.as_arguments())

    def _forget(self, connection: Connection) -> None:
        """One that has ended; where it had not run all that it was given, another does the rest."""
        told = self._workers.pop(connection)
        connection.close()
        told.process.join()
        if not told.pending:
            if told.process.exitcode:
                self._session.shouldfail = f"{told.name} ended with status {told.process.exitcode} after its last test"
            return
        self._report(told, self._died(told.pending.popleft(), told))
        if told.pending:
            self._queue.appendleft(list(told.pending))
        self._start(told.name)

    def _died(self, number: int, told: _Worker) -> worker.Told:
        """What is said of the test that ended its worker."""
        item = self._session.items[number]
        why = f"the process {told.name} that ran it ended with status {told.process.exitcode}"
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", why, "call")
        hook = self._session.config.hook
        return worker.Told([hook.pytest_report_to_serializable(config=self._session.config, report=report)], [])

    def _end(self) -> None:
        """Those that have tests left end after the one that they run."""
        for connection in self._workers:
            connection.close()
        for told in self._workers.values():
            told.process.join()


class _Worker:
    """`pending`: numbers of the tests that it was given and has not reported; it runs the first."""

    def __init__(self, name: str, process: multiprocessing.context.ForkProcess) -> None:
        self.name = name
        self.process = process
        self.pending = deque[int]()
