"""For all tests."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio.plugin
from hypothesis import settings

from tests import bare_python, left_children, left_log_handlers, shared_certificates
from tests.fork_server import session
from tests.order import Order
from tests.workers import plugin as workers

bare_python.make()
shared_certificates.share()

# How long an example takes says how busy the machine is.
settings.register_profile("tests", deadline=None)
settings.load_profile("tests")


def pytest_addoption(parser: pytest.Parser) -> None:
    workers.add_option(parser)
    parser.addoption("--machines", action="store_true", help="also what needs a machine of its own, as root")
    parser.addoption("--live-gpu", action="store_true", help="also what needs real GPUs, by `make live-gpu`")
    live = parser.getgroup("live", "real services, tests/platforms/live; `make live` gives all of these")
    live.addoption("--live", metavar="NAME", help="the training service: what its section of the config says")
    live.addoption("--live-config", metavar="FILE", help="an experiment's config with that section")
    live.addoption("--live-address", default="127.0.0.1", help="how its jobs reach this machine")
    live.addoption("--live-patience", type=float, default=300.0, help="seconds within which it does anything")
    live.addoption("--live-without", action="append", default=[], metavar="FEATURE", help="what it does not have")
    live.addoption("--live-ledger", type=Path, metavar="FILE", help="where is noted what was submitted")
    live.addoption("--live-trials", type=int, default=16, help="of the digits example")
    live.addoption("--live-kubeconfig", metavar="FILE", help="of a cluster: of whom tests act as others by")
    live.addoption("--live-namespace", help="of a cluster: which the tests have for themselves")
    live.addoption("--live-image", help="of a cluster: any with Python")


def pytest_configure(config: pytest.Config) -> None:
    config.add_cleanup(bare_python.remove)
    config.pluginmanager.register(left_children)
    config.pluginmanager.register(left_log_handlers)
    config.pluginmanager.register(workers)
    config.pluginmanager.register(session)
    _look_at_loops_alone(config.pluginmanager.getplugin("looptime_plugin"))
    config.pluginmanager.register(Order(config))


def _look_at_loops_alone(looptime: Any) -> None:
    """It looks through all that pytest-asyncio defines after each fixture of each test; none of ours makes a loop."""
    if looptime is not None and hasattr(looptime, "_should_patch"):
        looptime._should_patch = lambda fixture, _: fixture.func.__module__ == pytest_asyncio.plugin.__name__


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Thousands of tests, and the modules that have them, stay to the end. To look through all of these again and again
    for garbage is a tenth of what short tests cost: the collector leaves them out."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What changes the machine it runs on runs where that was said, and is named elsewhere."""
    for item in items:
        if item.get_closest_marker("machines") and not config.getoption("machines"):
            item.add_marker(pytest.mark.skip(reason=f"{item.name}: runs by `make machines`"))
        if item.get_closest_marker("live_gpu") and not config.getoption("--live-gpu"):
            item.add_marker(pytest.mark.skip(reason=f"{item.name}: runs by `make live-gpu`"))


@pytest.hookimpl(tryfirst=True, wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """looptime makes an event loop for tests that are no coroutines, too, and leaves it open, which is a warning."""
    if pyfuncitem.get_closest_marker("asyncio") is None:  # coroutines were wrapped in functions by now
        pyfuncitem.funcargs.pop("event_loop_policy", None)
    return (yield)


@pytest.fixture(scope="session", autouse=True)
def no_loop_is_left_open() -> Iterator[None]:
    """pytest-asyncio 1.5 makes the main thread a loop when it has none, and never closes it."""
    yield
    with suppress(RuntimeError), warnings.catch_warnings(action="ignore"):
        asyncio.get_event_loop_policy().get_event_loop().close()
