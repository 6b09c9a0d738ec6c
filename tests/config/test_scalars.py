"""The formats of single values."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from nni_manager.config.reading.scalars import (
    duration,
    gpu_indices,
    memory_mb,
    memory_quantity,
    python_version,
    seconds,
    whole_number,
    whole_seconds,
)

pytestmark = pytest.mark.unit

Parse = Callable[[object], object]

GOOD: list[tuple[Parse, object, object]] = [
    (whole_seconds, "0.5h", 1800),
    (whole_seconds, "1.1m", 66),
    (whole_seconds, "1.01s", 2),
    (whole_seconds, 7, 7),
    (whole_seconds, ".5m", 30),
    (whole_seconds, "3D", 259200),
    (whole_seconds, "10 m", 600),
    (seconds, "0.25s", 0.25),
    (seconds, 0, 0),
    (seconds, 1.5, 1.5),
    (duration, "90S", "90S"),
    (duration, 12, 12),
    (python_version, " 3.11 ", "3.11"),
    (memory_mb, "8GB", 8192),
    (memory_mb, "2gb", 2048),
    (memory_mb, "8192mb", 8192),
    (memory_mb, "1TB", 1048576),
    (memory_mb, "1kb", 1),
    (memory_mb, "0.5 Gb", 512),
    (memory_mb, "1048577b", 2),
    (memory_mb, 300, 300),
    (memory_quantity, "8Gi", "8Gi"),
    (memory_quantity, "1.5G", "1.5G"),
    (memory_quantity, "4Mi", "4Mi"),
    (memory_quantity, "8e6", "8e6"),
    (memory_quantity, 8589934592, "8589934592"),
    (gpu_indices, 0, [0]),
    (gpu_indices, "0", [0]),
    (gpu_indices, "0,1,3", [0, 1, 3]),
    (gpu_indices, [4, 2], [4, 2]),
    (partial(whole_number, minimum=0), 0, 0),
    (partial(whole_number, minimum=1), 5, 5),
]

BAD: list[tuple[Parse, object]] = [
    *((seconds, raw) for raw in ("", "s", "5", "5x", "-5s", "1e3s", "5s5s", None, [], True, 10**400, "9" * 400 + "d")),
    *((duration, raw) for raw in (0, "0s", 0.0, -1)),
    *((memory_mb, raw) for raw in ("8 potatoes", "4gg", "8", "", 0, -1, True, 1.5, None, "0gb")),
    *((memory_quantity, raw) for raw in (8, "8", "8m", "4095Ki", "0Gi", "8GB", "", None, "8000000000n", "1e6")),
    *((gpu_indices, raw) for raw in ([], "", ",", "0,", "a", [0, 0], "1,1", [-1], -1, True, [1.0], ["0"], None, {})),
    *((python_version, raw) for raw in (3.11, 3, "3", "3.", "2.7", "3.11.7", "python3.11", "", None)),
    *((partial(whole_number, minimum=1), raw) for raw in (0, True, "3", 3.0, None)),
]


@pytest.mark.parametrize(("parse", "raw", "value"), GOOD)
def test_good_values(parse: Parse, raw: object, value: object) -> None:
    assert parse(raw) == value


@pytest.mark.parametrize(("parse", "raw"), BAD, ids=range(len(BAD)))
def test_bad_values(parse: Parse, raw: object) -> None:
    with pytest.raises(ValueError, match=r"^(must|names)"):
        parse(raw)


@pytest.mark.parametrize(
    ("raw", "advice"),
    [(8, "8 bytes; add a unit, such as 512Mi or 8Gi"), ("100k", "100k; use a larger unit, such as 512Mi")],
)
def test_too_little_memory_is_refused_with_units(raw: object, advice: str) -> None:
    with pytest.raises(ValueError, match=f"^must be at least 4Mi, not {advice}$"):
        memory_quantity(raw)
