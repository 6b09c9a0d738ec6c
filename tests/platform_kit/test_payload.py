"""The variables of a job that name its folders, and what of ours it may import."""

from __future__ import annotations

from pathlib import Path

import pytest

from nni_manager.platform_kit import payload
from trial_runner import protocol

pytestmark = pytest.mark.unit


def test_trial_finds_its_folders() -> None:
    assert payload.directory_environment("/trials/abcde", "/code") == {
        "NNI_SYS_DIR": "/trials/abcde",
        "NNI_OUTPUT_DIR": "/trials/abcde",
        "NNI_CODE_DIR": "/code",
        "NNI_CHECKPOINT_DIR": "/trials/abcde-checkpoint",
        "NNI_OUTBOX": "/trials/abcde/outbox/main.jsonl",
    }


def test_stand_in_comes_last_on_the_path() -> None:
    given = {"PYTHONPATH": "/mine:/yours", "HOME": "/root"}
    assert payload.with_stand_in(given) == {"PYTHONPATH": f"/mine:/yours:{payload.STAND_IN}", "HOME": "/root"}
    assert given["PYTHONPATH"] == "/mine:/yours"


@pytest.mark.parametrize("given", [{}, {"PYTHONPATH": ""}])
def test_without_a_path_there_is_no_empty_entry(given: dict[str, str]) -> None:
    """An empty entry would be the working directory."""
    assert payload.with_stand_in(given)["PYTHONPATH"] == payload.STAND_IN


def test_stand_in_and_channel_are_on_path() -> None:
    folder = Path(payload.STAND_IN)
    assert (folder / "nni" / "__init__.py").is_file()
    module = protocol.COMMAND_CHANNEL.removeprefix("import://").split(".")[0]
    assert (folder / f"{module}.py").is_file()
