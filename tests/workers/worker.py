"""A fork of the process that has found the tests: it runs those that it is given."""

from __future__ import annotations

import atexit
import os
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from _pytest._io import TerminalWriter


@dataclass(frozen=True)
class Warned:
    """A warning that a test gave; `told`: what pytest knows of it besides."""

    category: str
    text: str
    file: str
    line: int
    told: dict[str, Any]

    def as_arguments(self) -> dict[str, Any]:
        """Of the hook. Its class need not be known where it is shown."""
        message = warnings.WarningMessage(f"{self.category}: {self.text}", UserWarning, self.file, self.line)
        return {"warning_message": message, **self.told}


@dataclass
class Told:
    """Of one test."""

    reports: list[dict[str, Any]] = field(default_factory=list)
    warnings: list[Warned] = field(default_factory=list)


def run(session: pytest.Session, name: str, connection: Connection, others: Iterable[Connection]) -> None:
    """To the end of the process. `others`: the parent's, whose end would not be noticed where forks have them, too."""
    for other in others:
        other.close()
    _become(name, session.config)
    reports = _Reports(session.config)
    session.config.pluginmanager.register(reports)
    try:
        with suppress(BrokenPipeError, EOFError, ConnectionResetError):  # no more is wanted
            _run_all(session, connection, reports)
    except BaseException:
        session.config.pluginmanager.getplugin("capturemanager").stop_global_capturing()  # or it would not be seen
        raise
    finally:
        session._setupstate.teardown_exact(None)
        atexit._run_exitfuncs()


def _run_all(session: pytest.Session, connection: Connection, reports: _Reports) -> None:
    given = _given(session, connection)
    item = next(given, None)
    while item is not None:
        following = next(given, None)
        session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        connection.send(reports.take())
        item = following


def _given(session: pytest.Session, connection: Connection) -> Iterator[pytest.Item]:
    """A group is asked for when the one before has been begun with to the last test: what that leaves set up hangs on
    which is next."""
    while True:
        connection.send(None)
        if not (group := connection.recv()):
            return
        for number in group:
            yield session.items[number]


def _become(name: str, config: pytest.Config) -> None:
    """What the parent has once, each fork has for itself."""
    atexit._clear()  # the parent's
    os.environ["PYTEST_WORKER"] = name
    _capture_anew(config.pluginmanager.getplugin("capturemanager"))
    _show_nothing(config.pluginmanager)
    factory: Any = config._tmp_path_factory  # type: ignore[attr-defined]
    factory._given_basetemp, factory._basetemp = Path(factory.getbasetemp()) / name, None


def _capture_anew(manager: Any) -> None:
    """Into files of its own."""
    manager.stop_global_capturing()
    manager.start_global_capturing()
    manager.suspend_global_capture()


def _show_nothing(plugins: pytest.PytestPluginManager) -> None:
    """But what a test that takes too long says of its threads, which is captured with what else it says."""
    plugins.unregister(name="terminalreporter")
    plugins.register(_Captured(), "terminalreporter")


class _Captured:
    """In place of pytest's own report, whose writer others ask for."""

    @property
    def _tw(self) -> TerminalWriter:
        return TerminalWriter(sys.stderr)


class _Reports:
    """Hears what pytest says of a test."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._told = Told()

    def take(self) -> Told:
        told, self._told = self._told, Told()
        return told

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._told.reports.append(data)

    def pytest_warning_recorded(
        self,
        warning_message: warnings.WarningMessage,
        when: str,
        nodeid: str,
        location: tuple[str, int, str] | None,
    ) -> None:
        told = {"when": when, "nodeid": nodeid, "location": location}
        name = warning_message.category.__name__
        place = warning_message.filename, warning_message.lineno
        self._told.warnings.append(Warned(name, str(warning_message.message), *place, told))
