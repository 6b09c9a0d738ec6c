"""The guesses of a fake are in its platform's README, word for word."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

FAKES = Path(__file__).parent
PLATFORMS = FAKES.parents[1] / "nni_manager" / "platforms"
#: Platform → text with the guesses of its fake.
HEADS = {
    "openpai": "openpai/__init__.py",
    "dlts": "dlts/__init__.py",
    "aml": "aml/README.md",
    "dlc": "dlc/README.md",
    "kubeflow": "kubernetes/README.md",
    "frameworkcontroller": "kubernetes/README.md",
    "adl": "kubernetes/README.md",
    "kubernetes": "kubernetes/README.md",
}
_BULLET = re.compile(r"^- (.*(?:\n  .*)*)", re.MULTILINE)


@pytest.mark.parametrize("platform", HEADS)
def test_guesses_of_a_fake_are_in_the_platform_readme(platform: str) -> None:
    head = FAKES / HEADS[platform]
    guesses = _bullets(re.split(r"(?m)^(?:## )?(?:Guesses|What it guesses)", head.read_text())[1])
    if head.parent.name == "kubernetes":
        guesses = {one.removeprefix(f"`{platform}`: ") for one in guesses if one.startswith(f"`{platform}`: ")}
    told = _bullets((PLATFORMS / platform / "README.md").read_text().split("## Not seen on a live account")[1])
    assert guesses and guesses <= told


def _bullets(text: str) -> set[str]:
    """The items of one section, each on one line."""
    return {" ".join(found.split()) for found in _BULLET.findall(re.split(r"(?m)^## ", text.lstrip("\n"))[0])}
