"""The daemon raises its limit of open files as far as needed and allowed."""

from __future__ import annotations

import resource
from resource import RLIM_INFINITY

import pytest

from nni_manager.app.listening import reserves

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((1024, 524_288), (8192, 524_288)),
        ((1024, RLIM_INFINITY), (8192, RLIM_INFINITY)),
        ((256, 4096), (4096, 4096)),
        ((256, 256), (256, 256)),
        ((20_000, 20_000), (20_000, 20_000)),
        ((RLIM_INFINITY, RLIM_INFINITY), (RLIM_INFINITY, RLIM_INFINITY)),
    ],
)
def test_descriptor_limit_is_raised(
    before: tuple[int, int], after: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = [before]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limit[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, value: limit.append(value))
    reserves.allow_many()
    assert limit[-1] == after
