"""Options and fixtures of all tests."""

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

# The duration of an example depends on the load of the machine.
settings.register_profile("tests", deadline=None)
settings.load_profile("tests")


def pytest_addoption(parser: pytest.Parser) -> None:
    workers.add_option(parser)
    parser.addoption("--machines", action="store_true", help="also run tests that change the machine, as root")
    parser.addoption("--live-gpu", action="store_true", help="also run tests with real GPUs, as `make live-gpu` does")
    parser.addoption("--slurm", action="store_true", help="also run all tests on a real Slurm, as `make slurm` does")
    live = parser.getgroup("live", "real services, tests/platforms/live; `make live` sets these options")
    live.addoption("--live", metavar="NAME", help="name of the training service, as in its section of the config")
    live.addoption("--live-config", metavar="FILE", help="config of an experiment with that section")
    live.addoption("--live-address", default="127.0.0.1", help="address at which its jobs reach this machine")
    live.addoption("--live-patience", type=float, default=300.0, help="maximum seconds for any step of the service")
    live.addoption(
        "--live-without", action="append", default=[], metavar="FEATURE", help="feature that the service does not have"
    )
    live.addoption("--live-ledger", type=Path, metavar="FILE", help="file in which submitted jobs are recorded")
    live.addoption("--live-trials", type=int, default=16, help="number of trials of the digits example")
    live.addoption(
        "--live-kubeconfig", metavar="FILE", help="Kubernetes: kubeconfig with the right to impersonate users"
    )
    live.addoption("--live-namespace", help="Kubernetes: namespace used only by the tests")
    live.addoption("--live-image", help="Kubernetes: any image with Python")


def pytest_configure(config: pytest.Config) -> None:
    config.add_cleanup(bare_python.remove)
    config.pluginmanager.register(left_children)
    config.pluginmanager.register(left_log_handlers)
    config.pluginmanager.register(workers)
    config.pluginmanager.register(session)
    _look_at_loops_alone(config.pluginmanager.getplugin("looptime_plugin"))
    config.pluginmanager.register(Order(config))


def _look_at_loops_alone(looptime: Any) -> None:
    """Disable a search by pytest-asyncio after each fixture of each test; no fixture of ours creates a loop."""
    if looptime is not None and hasattr(looptime, "_should_patch"):
        looptime._should_patch = lambda fixture, _: fixture.func.__module__ == pytest_asyncio.plugin.__name__


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Exclude tests and their modules from garbage collection.

    They live until the end, and scanning thousands of them repeatedly takes a tenth of the time of short tests.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip tests that change the machine, by name, unless their option is set."""
    for item in items:
        if item.get_closest_marker("machines") and not config.getoption("machines"):
            item.add_marker(pytest.mark.skip(reason=f"{item.name}: run it with `make machines`"))
        if item.get_closest_marker("slurm") and not config.getoption("--slurm"):
            item.add_marker(pytest.mark.skip(reason=f"{item.name}: run it with `make slurm`"))
        if item.get_closest_marker("live_gpu") and not config.getoption("--live-gpu"):
            item.add_marker(pytest.mark.skip(reason=f"{item.name}: run it with `make live-gpu`"))


@pytest.hookimpl(tryfirst=True, wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Restrict looptime to coroutines: for other tests it leaves an open event loop, which is a warning."""
    if pyfuncitem.get_closest_marker("asyncio") is None:  # coroutines are wrapped in functions at this point
        pyfuncitem.funcargs.pop("event_loop_policy", None)
    return (yield)


@pytest.fixture(scope="session", autouse=True)
def no_loop_is_left_open() -> Iterator[None]:
    """Close the event loop that pytest-asyncio 1.5 creates for the main thread and never closes."""
    yield
    with suppress(RuntimeError), warnings.catch_warnings(action="ignore"):
        asyncio.get_event_loop_policy().get_event_loop().close()
