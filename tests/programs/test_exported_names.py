"""Names that programs import from `nni_manager`."""

from __future__ import annotations

from pathlib import Path

import pytest

import nni_manager
from nni_manager.domain.errors import ConfigInvalid, Conflict

pytestmark = pytest.mark.unit


def test_every_name_is_there_and_has_a_type() -> None:
    stub = Path(nni_manager.__file__).with_name("__init__.pyi").read_text()
    for name in nni_manager._MODULES:
        assert getattr(nni_manager, name).__name__ == name and f" as {name}\n" in stub


def test_errors_that_programs_catch_are_among_them() -> None:
    assert (nni_manager.ConfigInvalid, nni_manager.Conflict) == (ConfigInvalid, Conflict)
