"""What README and its like promise: links that lead somewhere, and every setting and field of ours."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nni_manager.config.daemon_settings import settings
from nni_manager.config.sections.experiment_model import FIELDS
from nni_manager.platform_kit import registry

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
TEXTS = sorted(
    path for places in ("*.md", "docs/*.md", "configs/**/*.md", "nni_manager/**/*.md") for path in ROOT.glob(places)
)


def test_links_lead_somewhere() -> None:
    for path in TEXTS:
        links = re.findall(r"\]\((?!https?://)([^)#]+)", path.read_text())
        assert [link for link in links if not (path.parent / link).exists()] == [], path


def test_every_setting_is_in_the_readme() -> None:
    for name, variable in settings.variables().items():
        assert f"`{name}`" in README and f"`{variable}`" in README


@pytest.mark.parametrize("name", ["maxTrialRetries", "gracePeriod", "metricGrace", "versionCheck", "logCollection"])
def test_every_field_of_ours_is_in_the_readme(name: str) -> None:
    assert name in FIELDS and f"| `{name}` |" in README


def test_every_platform_is_in_the_readme_in_its_own_words() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.+) \|$", README.split("| Platform |")[1].split("\n\n")[0], re.MULTILINE)
    assert rows == [(one.name, one.summary) for one in registry.descriptions()]
