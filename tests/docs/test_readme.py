"""README and other pages: links and paths exist, and README is short and quotes measured figures."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from nni_manager.assessors import registry as assessors
from nni_manager.config import settings
from nni_manager.platform_kit import registry
from nni_manager.tuners import registry as tuners
from tests.docs import pages

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
TEXTS = sorted(
    path
    for places in ("*.md", "docs/**/*.md", "configs/**/*.md", "nni_manager/**/*.md", "tests/README.md")
    for path in ROOT.glob(places)
)
#: Pages with paths from the root, and the folders that those begin with; `nni_manager` may be left out.
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "tests" / "README.md"]
#: Bytes of the pages that a reader meets first; of the changelog, until the first release.
LARGEST = {"README.md": 9000, "CHANGELOG.md": 8000, "CONTRIBUTING.md": 6000}
TOP = {path.name for folder in (ROOT, ROOT / "nni_manager") for path in folder.iterdir() if path.is_dir()}


def test_links_lead_somewhere() -> None:
    for path in TEXTS:
        links = re.findall(r"\]\((?!https?://)([^)#]+)", path.read_text())
        assert [link for link in links if not (path.parent / link).exists()] == [], path


def test_list_of_pages_has_each_once() -> None:
    listed = re.findall(r"^\| \[.+?\]\((.+?)\) \|", (ROOT / "docs" / "README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(
        str(path.relative_to(ROOT / "docs")) for path in ROOT.glob("docs/**/*.md") if path.name != "README.md"
    )


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


def test_every_setting_is_on_the_page_of_operations() -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    for name, variable in settings.variables().items():
        assert f"`{name}`" in page and f"`{variable}`" in page


def test_every_platform_is_in_the_readme_with_its_page() -> None:
    rows = re.findall(r"^\| \[`(\w+)`\]\((\S+)\) \|", README, re.MULTILINE)
    assert [name for name, _ in rows[:2]] == ["local", "remote"]
    assert sorted(name for name, _ in rows) == [one.name for one in registry.descriptions()]
    assert [link for name, link in rows if link != f"nni_manager/platforms/{name}/README.md"] == []


def test_every_algorithm_is_in_the_readme() -> None:
    built_in = [*tuners.CATALOGUE.built_in, *assessors.CATALOGUE.built_in]
    assert [one.name for one in built_in if not re.search(rf"\b{one.name}\b", README)] == []


@pytest.mark.parametrize("name", LARGEST)
def test_page_at_the_top_is_short(name: str) -> None:
    assert len((ROOT / name).read_bytes()) <= LARGEST[name]


def test_first_screen_of_the_readme_holds_the_start() -> None:
    lines = README.splitlines()
    fences = [number for number, line in enumerate(lines) if line.startswith("```")]
    screen = lines[: fences[9] + 1]  # five blocks: demo, tests, installation, a program, commands
    assert len(screen) <= 50 and any(line.startswith("![") for line in screen)
    assert [line for line in screen if len(line) > 80] == []


def test_first_commands_of_the_readme_are_demo_and_test() -> None:
    commands = [block.text for block in pages.blocks(ROOT / "README.md")]
    assert commands[:2] == ["make demo\n", "make test\n"]


def test_figures_of_the_readme_are_those_of_the_page() -> None:
    page = (ROOT / "docs" / "figures.md").read_text()
    rows = {row[0]: row for row in (line.strip("| ").split(" | ") for line in page.splitlines() if line[:2] == "| ")}
    survives = " ".join(README.split("## What it survives")[1].split("\n## ")[0].split())
    missing = rows["results missing of 1,000 lite trials"]
    answer = rows["`serve` → first answer, s; floor: `import fastapi, uvicorn`"]
    lost = rows["50 processes with NNI's SDK at once, 200 results each: lost"]
    jobs = rows["`trial-jobs` p50, ms, 10,000 trials"]
    assert f"of 1,000 short trials {missing[3]} results are missing (NNI 3.0: {missing[2]})" in survives
    assert f"answers within {float(answer[3]):.1f} s" in survives
    assert f"lose {lost[3]} of 10,000" in survives
    assert f"takes {float(jobs[3]):.1f} ms (NNI 3.0: {jobs[2]} ms)" in survives
