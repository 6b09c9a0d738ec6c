"""Additional cases of a test, which only `make thorough` runs."""

from __future__ import annotations

from typing import Any

import pytest


def besides(*values: object) -> list[Any]:
    """Cases for `@pytest.mark.parametrize` with one argument; append them to those of `make test`."""
    return [pytest.param(value, marks=pytest.mark.thorough) for value in values]
