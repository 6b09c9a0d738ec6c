"""Cases that a test has besides: `make test` runs it without them, `make thorough` with them alone."""

from __future__ import annotations

from typing import Any

import pytest


def besides(*values: object) -> list[Any]:
    """For `@pytest.mark.parametrize` of one argument, behind the cases that `make test` runs, too."""
    return [pytest.param(value, marks=pytest.mark.thorough) for value in values]
