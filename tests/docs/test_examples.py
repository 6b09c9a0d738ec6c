"""Every example experiment loads, and says what it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from nni_manager.config.experiment_file import from_canonical, read_file

pytestmark = pytest.mark.unit

CONFIGS = Path(__file__).parents[2] / "configs"
EXAMPLES = sorted(CONFIGS.glob("*.yml"))


def test_there_are_examples() -> None:
    assert EXAMPLES


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_example_loads(path: Path) -> None:
    spec = read_file(path).spec
    assert spec.trial_command
    assert Path(spec.trial_code_directory).is_dir()
    assert from_canonical(spec.canonical) == spec, "what is stored is what was read"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_example_is_named_in_the_readme(path: Path) -> None:
    assert path.name in (CONFIGS / "README.md").read_text()
