"""Fail a test that leaves a log handler: a test that opens an experiment closes its log."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

_LOGGER = logging.getLogger("nni_manager")


@pytest.fixture(autouse=True)
def no_log_handler_is_left() -> Iterator[None]:
    before = list(_LOGGER.handlers)
    yield
    left = [handler for handler in _LOGGER.handlers if handler not in before]
    for handler in left:
        _LOGGER.removeHandler(handler)
    if left:
        pytest.fail(f"left behind: {left}", pytrace=False)
