"""Masked values of a config."""

from __future__ import annotations

from typing import Any

import pytest

from nni_manager.config.secrets import MASK, mask

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    "name",
    [
        "api_key",
        "apikey",
        "accessKey",
        "secretKey",
        "storageAccountKey",
        "token",
        "tokens",
        "authToken",
        "auth-token",
        "GITHUB_TOKEN",
        "HFTokenValue",
        "password",
        "passphrase",
        "my_password_2",
        "credentials",
        "key",
        "API_KEY",
        "primaryKey",
    ],
)
@pytest.mark.parametrize("value", ["s3cret", ["s3cret"], {"a": "s3cret"}])
def test_a_secret_is_covered_in_every_section(name: str, value: Any) -> None:
    config = {name: value, "trainingService": {name: value}, "tuner": {"classArgs": {"deep": [{name: value}]}}}
    assert "s3cret" not in str(mask(config))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_tokens", 5),
        ("max_tokens", "5"),
        ("tokenizer", "bert"),
        ("sort_key", "acc"),
        ("sortKey", "acc"),
        ("pad_token", "[PAD]"),
        ("keyboard", "qwerty"),
        ("metric_key", "acc"),
        ("key_size", "3"),
        ("token", None),
    ],
)
def test_argument_without_secret_is_shown(name: str, value: object) -> None:
    section = {"name": "Mine", "classArgs": {name: value, "deep": [{name: value}]}}
    config = {"tuner": section, "assessor": section, "advisor": section}
    assert mask(config) == config


def test_a_number_may_be_a_password() -> None:
    assert mask({"tuner": {"classArgs": {"password": 1234, "token": 5}}}) == {
        "tuner": {"classArgs": {"password": MASK, "token": MASK}}
    }


@pytest.mark.parametrize("name", ["tokenizer", "sort_key", "max_tokens"])
def test_elsewhere_a_doubtful_name_is_covered(name: str) -> None:
    assert mask({"trainingService": {name: "x"}}) == {"trainingService": {name: MASK}}
