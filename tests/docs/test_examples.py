"""Every example experiment loads, and says what it is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nni_manager.config.experiment_file import from_canonical, read_file
from nni_manager.domain.results import direction

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]
CONFIGS = ROOT / "configs"
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
def test_example_states_its_direction(path: Path) -> None:
    assert direction.find(read_file(path).spec.canonical).note == ""


#: Sections of tuners on pages: in YAML on one line or several, and in Python.
_SECTION = re.compile(r"^ *(?:tuner|advisor):.*(?:\n +.*)*|^ *tuner=.*", re.MULTILINE)


def test_tuners_on_pages_state_their_direction() -> None:
    pages = [ROOT / "README.md", ROOT / "configs" / "README.md", *sorted(ROOT.glob("docs/*.md"))]
    blocks = (
        text for page in pages for text in re.findall(r"^```.*?^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    )
    found = [section for text in blocks for section in _SECTION.findall(text)]
    assert len(found) > 8
    assert [one for one in found if "optimize_mode" not in one and "NSGA2" not in one] == []


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_example_is_named_in_the_readme(path: Path) -> None:
    assert path.name in (CONFIGS / "README.md").read_text()
