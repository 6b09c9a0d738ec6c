"""The option, and the loop over all tests in place of pytest's own."""

from __future__ import annotations

import pytest

from tests.workers.hand_out import HandOut


def add_option(parser: pytest.Parser) -> None:
    parser.addoption("--workers", type=int, default=0, metavar="N", help="tests at a time; 0: in this process")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """True: all was run. None: pytest's own loop is asked, as it is where there is something wrong with the tests."""
    options = session.config.option
    if not options.workers or options.collectonly or session.testsfailed or not session.items:
        return None
    HandOut(session).to(options.workers)
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)
    return True
