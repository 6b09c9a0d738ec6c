"""Settings, errors, states and codes are explained where they are defined."""

from __future__ import annotations

import inspect

import pytest

from nni_manager.config import settings
from nni_manager.domain import errors
from nni_manager.domain.errors import NniManagerError
from nni_manager.domain.experiment import ExperimentStatus, HoldCode
from nni_manager.domain.job import JobState
from nni_manager.domain.service import WaitCode
from nni_manager.domain.trial_status import TrialStatus

pytestmark = pytest.mark.unit

ERRORS = [found for _, found in inspect.getmembers(errors, inspect.isclass) if issubclass(found, NniManagerError)]


def explained(source: str, name: str, sign: str) -> bool:
    """Whether a ``#:`` comment stands right above ``name`` and the sign after it."""
    lines = [line.strip() for line in source.splitlines()]
    (number,) = [number for number, line in enumerate(lines) if line.startswith(f"{name}{sign}")]
    above = lines[number - 1]
    return above.startswith("#: ") and len(above) > 10


def test_every_setting_is_explained() -> None:
    fields = settings.Settings.model_fields
    assert [name for name, field in fields.items() if len(field.description or "") < 10] == []


def test_every_error_is_explained_and_stands_in_the_tree() -> None:
    tree = f"{(errors.__doc__ or '')} ".replace("\n", " \n")
    for error in ERRORS:
        assert (error.__doc__ or "").strip(), error.__name__
        assert f" {error.__name__} " in tree
        assert issubclass(error, NniManagerError)


CODES = [member for kind in (HoldCode, WaitCode, TrialStatus, ExperimentStatus, JobState) for member in kind]


def test_every_state_and_code_is_explained() -> None:
    sources = {kind: inspect.getsource(kind) for kind in {type(member) for member in CODES}}
    assert [member for member in CODES if not explained(sources[type(member)], member.name, " =")] == []
