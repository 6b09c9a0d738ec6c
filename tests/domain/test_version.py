"""Which trial runners a manager takes: the first two numbers, compared as numbers."""

from __future__ import annotations

import pytest

from nni_manager.domain.version import refusal

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("manager", "runner"),
    [
        ("0.6.0", "0.6.0"),
        ("0.6.0", "0.6.2"),
        ("0.6.1", "0.6"),
        ("0.6", "0.6.1"),
        ("0.6.0", "v0.6.3"),
        ("v0.6.0", "0.6.3"),
        ("0.6.0", "0.6.0rc1"),
        ("0.6.0", "0.6-dev"),
        ("0.6.0", "00.06.0"),
        ("0.6.0", " 0.6.0\n"),
        ("2.10.0", "2.10.7"),
        ("0.6.0", "0.6+local.9"),
    ],
)
def test_matching_versions_are_accepted(manager: str, runner: str) -> None:
    assert refusal(manager, runner) == ""


@pytest.mark.parametrize(
    ("manager", "runner"),
    [
        ("0.6.0", "0.5.1"),
        ("0.6.0", "0.7.0"),
        ("0.6.0", "1.6.0"),
        ("2.10", "2.1"),
        ("2.1", "2.10"),
        ("2.1.0", "2.11.0"),
        ("0.6.0", "6"),
        ("0.6.0", "0."),
        ("0.6.0", ".6"),
        ("0.6.0", "0,6"),
        ("0.6.0", "latest"),
        ("0.6.0", "vv0.6.0"),
        ("0.6.0", "-0.6.0"),
        ("0.6.0", "9" * 5000 + ".6"),
        ("0.6.0", "0.6" + "0" * 5000),
    ],
)
def test_other_version_is_refused(manager: str, runner: str) -> None:
    sentence = refusal(manager, runner)
    assert f"the trial runner is version {runner}, this manager is {manager}:" in sentence
    assert "their first two numbers must be equal" in sentence and "versionCheck: false" in sentence


@pytest.mark.parametrize("runner", [None, ""])
def test_runner_without_version_is_refused(runner: str | None) -> None:
    sentence = refusal("0.6.0", runner)
    assert sentence == "the trial runner names no version, this manager is 0.6.0: use the runner that comes with it"
