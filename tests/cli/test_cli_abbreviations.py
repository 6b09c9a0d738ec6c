"""Long options that are cut short."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from tests.cli.fake_manager import CONFIG, FakeManager

pytestmark = pytest.mark.unit

Run = Callable[..., Result]


@pytest.mark.parametrize("words", [["--conf", "FILE"], ["--conf=FILE"], ["-c", "FILE"], ["--con", "FILE", "--url_p=x"]])
def test_an_option_may_be_cut_short(nnictl: Run, manager: FakeManager, file: Path, words: list[str]) -> None:
    result = nnictl("create", *(word.replace("FILE", str(file)) for word in words))
    assert result.exit_code == 0, result.output
    assert manager.calls[0][1] == CONFIG


def test_ambiguous_option_names_the_candidates(nnictl: Run) -> None:
    result = nnictl("create", "--t", "experiment.yml")
    assert result.exit_code == 2
    assert result.stderr == "nnictl: --t is ambiguous: --token-file, --tuner-python; write the option in full\n"


def test_value_is_not_an_option(nnictl: Run) -> None:
    result = nnictl("create", "--config", "--tok")
    assert result.exit_code == 2 and "--tok" in result.stderr and "--token-file" not in result.stderr


def test_help_may_be_cut_short_for_groups_and_commands(nnictl: Run) -> None:
    assert nnictl("experiment", "list", "--he").stdout == nnictl("experiment", "list", "--help").stdout
    assert nnictl("experiment", "--he").stdout == nnictl("experiment", "--help").stdout


def test_unknown_option(nnictl: Run) -> None:
    result = nnictl("trial", "ls", "--nonsense")
    assert result.exit_code == 2 and "No such option" in result.stderr
