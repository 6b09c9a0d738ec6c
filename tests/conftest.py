"""For all tests."""

from __future__ import annotations

from collections.abc import Generator

import pytest


@pytest.hookimpl(tryfirst=True, wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """looptime makes an event loop for tests that are no coroutines, too, and leaves it open, which is a warning."""
    if pyfuncitem.get_closest_marker("asyncio") is None:  # coroutines were wrapped in functions by now
        pyfuncitem.funcargs.pop("event_loop_policy", None)
    return (yield)
