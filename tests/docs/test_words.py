"""Settings, errors, states and codes are explained where they are defined."""

from __future__ import annotations

import inspect
from enum import Enum

import pytest

from nni_manager.config import settings
from nni_manager.domain import errors
from nni_manager.domain.errors import NniManagerError
from nni_manager.domain.experiment import ExperimentStatus, HoldCode
from nni_manager.domain.job import JobState
from nni_manager.domain.trial import TrialStatus
from nni_manager.domain.wait import WaitCode

pytestmark = pytest.mark.unit

ERRORS = [
    found for _, found in inspect.getmembers(errors, inspect.isclass) if issubclass(found, NniManagerError)
]  # fmt: skip


def explained(source: str, name: str, sign: str) -> bool:
    """Whether a ``#:`` comment stands right above ``name`` and the sign after it."""
    lines = [line.strip() for line in source.splitlines()]
    (number,) = [number for number, line in enumerate(lines) if line.startswith(f"{name}{sign}")]
    above = lines[number - 1]
    return above.startswith("#: ") and len(above) > 10


@pytest.mark.parametrize("name", settings.Settings.__dataclass_fields__)
def test_every_setting_is_explained(name: str) -> None:
    assert explained(inspect.getsource(settings.Settings), name, ":")


@pytest.mark.parametrize("setting", settings._SETTINGS, ids=lambda setting: setting.name)
def test_every_setting_names_its_place_in_file_and_environment(setting: settings._Setting) -> None:
    source = inspect.getsource(settings.Settings)
    assert f"``{setting.name}``, ``{setting.variable}``" in source
    assert setting.attribute in settings.Settings.__dataclass_fields__


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
def test_every_error_is_explained_and_stands_in_the_tree(error: type[NniManagerError]) -> None:
    assert (error.__doc__ or "").strip()
    assert f" {error.__name__} " in f"{(errors.__doc__ or '')} ".replace("\n", " \n")
    assert issubclass(error, NniManagerError)


CODES = [
    member for kind in (HoldCode, WaitCode, TrialStatus, ExperimentStatus, JobState) for member in kind
]  # fmt: skip


@pytest.mark.parametrize("member", CODES, ids=str)
def test_every_state_and_code_is_explained(member: Enum) -> None:
    assert explained(inspect.getsource(type(member)), member.name, " =")
