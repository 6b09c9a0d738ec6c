"""Numbers, durations and sizes as people read them, in the same form on pages and the command line."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import nni_manager
from nni_manager.domain.formats import duration, number, size

pytestmark = pytest.mark.unit

ROOT = Path(nni_manager.__file__).parent


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, "3"),
        (10**20, "100000000000000000000"),
        (0.1 + 0.2, "0.3"),
        (1234567.5, "1.23457e+06"),
        (1e-9, "1e-09"),
        (float("nan"), "NaN"),
        (float("-inf"), "-Infinity"),
    ],
)
def test_number(value: float, text: str) -> None:
    assert number(value) == text


def test_number_of_digits() -> None:
    assert [number(0.123456789, digits) for digits in (3, 9)] == ["0.123", "0.123456789"]


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (-5, "0.0 s"),
        (440, "0.4 s"),
        (9_999, "9.9 s"),
        (12_000, "12 s"),
        (59_999, "59 s"),
        (65_000, "1 min 5 s"),
        (7_620_000, "2 h 7 min"),
        (349_200_000, "4 d 1 h"),
    ],
)
def test_durations_have_two_units(ms: int, text: str) -> None:
    assert duration(ms) == text


@pytest.mark.parametrize(
    ("bytes", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (999_499, "999 kB"),
        (999_999, "1 MB"),
        (1_048_576, "1.05 MB"),
        (5_000_000_000, "5 GB"),
        (1_234_000_000_000_000, "1234 TB"),
    ],
)
def test_sizes_have_three_digits(bytes: int, text: str) -> None:
    assert size(bytes) == text


def test_durations_and_sizes_have_one_form() -> None:
    """A second function of one of these names showed 1.05 MB as 1.0 MB, and 65 s as 0:01:05."""
    modules = [path for folder in ("client", "web", "cli", "programs") for path in (ROOT / folder).rglob("*.py")]
    defined = {
        (str(path.relative_to(ROOT)), node.name)
        for path in modules
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name in ("duration", "size", "in_bytes")
        if not node.decorator_list  # a command of this name
    }
    assert defined == set()
