"""For all tests."""

from __future__ import annotations

import inspect
from collections.abc import Generator

import pytest


@pytest.hookimpl(tryfirst=True, wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """looptime makes an event loop for tests that are no coroutines, too, and leaves it open: a warning, so an error."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        pyfuncitem.funcargs.pop("event_loop_policy", None)
    return (yield)
