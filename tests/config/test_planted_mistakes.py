"""NNI's example configs with one mistake in each: one problem is found, with file, line, field, and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from nni_manager.config.experiment_file import load
from nni_manager.domain.errors import ConfigInvalid
from tests.config.test_nni_examples import EXAMPLES

pytestmark = pytest.mark.unit

#: File, what stands there, what is planted, then line, field and words of the one problem.
MISTAKES = yaml.safe_load((Path(__file__).parent / "planted_mistakes.yml").read_text())


def test_there_are_enough_mistakes() -> None:
    assert len(MISTAKES) >= 30


@pytest.mark.parametrize("mistake", MISTAKES, ids=range(len(MISTAKES)))
def test_mistake_is_named(mistake: dict[str, Any]) -> None:
    text = (EXAMPLES / mistake["file"]).read_text()
    assert mistake["right"] in text
    with pytest.raises(ConfigInvalid) as refused:
        load(text.replace(mistake["right"], mistake["wrong"], 1), directory=EXAMPLES, file=mistake["file"])
    [problem] = [one for one in refused.value.problems if "not in this version yet" not in one.message]
    place = (problem.file, problem.line, problem.field)
    assert place == (mistake["file"], mistake["line"], mistake["field"])
    assert mistake["words"] in problem.message
    assert "not-a-real" not in str(refused.value)
