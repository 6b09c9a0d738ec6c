"""README and other pages: links and paths exist, and every setting and field of ours is explained."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from nni_manager.config import settings
from nni_manager.config.sections.experiment_model import marked
from nni_manager.platform_kit import registry

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
TEXTS = sorted(
    path for places in ("*.md", "docs/*.md", "configs/**/*.md", "nni_manager/**/*.md") for path in ROOT.glob(places)
)
#: Pages with paths from the root, and the folders that those begin with; `nni_manager` may be left out.
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]
TOP = {path.name for folder in (ROOT, ROOT / "nni_manager") for path in folder.iterdir() if path.is_dir()}


def test_links_lead_somewhere() -> None:
    for path in TEXTS:
        links = re.findall(r"\]\((?!https?://)([^)#]+)", path.read_text())
        assert [link for link in links if not (path.parent / link).exists()] == [], path


def test_list_of_pages_has_each_once() -> None:
    listed = re.findall(r"^\| \[.+?\]\((.+?)\) \|", (ROOT / "docs" / "README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(path.name for path in ROOT.glob("docs/*.md") if path.name != "README.md")


def test_every_path_and_module_that_a_page_names_exists() -> None:
    found = [(path.name, word) for path in PAGES for word in _places(path.read_text())]
    assert len(found) > 40
    assert [place for place in found if not _exists(place[1])] == []


def _places(text: str) -> Iterator[str]:
    """Paths and dotted modules of the source, in backticks. Patterns, placeholders and plain file names are none."""
    for word in re.findall(r"`([\w.-]+(?:[./][\w.-]+)+)/?`", text):
        if re.split("[./]", word)[0] in TOP and ("/" in word or not word.endswith((".py", ".json"))):
            yield word


def _exists(word: str) -> bool:
    """A path, a package, or a module with at most one name of it, below the root or below `nni_manager`."""
    module, outer = word.replace(".", "/"), word.rpartition(".")[0].replace(".", "/")
    found = [word, module, f"{module}.py", f"{outer}.py"]
    return any((top / path).exists() for top in (ROOT, ROOT / "nni_manager") for path in found)


def test_every_setting_is_in_the_readme() -> None:
    for name, variable in settings.variables().items():
        assert f"`{name}`" in README and f"`{variable}`" in README


def test_every_field_of_ours_is_in_the_readme_with_its_default() -> None:
    table = README.split("These fields at the top level are ours:")[1].split("\n\n")[1]
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \|", table, re.MULTILINE)
    shown = marked("shown")
    assert rows == [(name, shown.get(name, "none")) for name in marked("ours")]


def test_every_platform_is_in_the_readme_in_its_own_words() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.+) \|$", README.split("| Platform |")[1].split("\n\n")[0], re.MULTILINE)
    assert rows == [(one.name, one.summary) for one in registry.descriptions()]
