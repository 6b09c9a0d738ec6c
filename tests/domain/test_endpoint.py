"""What may stand before the paths of an endpoint."""

from __future__ import annotations

import pytest

from nni_manager.domain.endpoint import Endpoint, EndpointWish, parse_prefix
from nni_manager.domain.errors import InvalidInput

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("text", "prefix"),
    [("", ""), ("/", ""), ("pre", "pre"), ("/my/pre/", "my/pre"), ("a.b/c-d_e~f", "a.b/c-d_e~f"), ("...", "...")],
)
def test_a_prefix_is_kept_without_its_outer_slashes(text: str, prefix: str) -> None:
    assert parse_prefix(text) == prefix


@pytest.mark.parametrize("text", ["a//b", "..", "a/../b", "./a", "a b", "a%2fb", "a?b", "a#b", "ä", "a\\b", "a\n"])
def test_invalid_prefix_is_named(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"urlPrefix: .* is invalid; use letters, digits"):
        parse_prefix(text)


def test_prefix_has_a_maximum_length() -> None:
    assert parse_prefix("a" * 200) == "a" * 200
    with pytest.raises(InvalidInput, match="urlPrefix: has 201 characters; choose one of at most 200"):
        parse_prefix("a" * 201)


def test_endpoint_path_and_explicitness() -> None:
    assert (Endpoint(port=1).path, Endpoint(port=1, prefix="my/pre").path) == ("/", "/my/pre/")
    assert not EndpointWish().is_explicit
    assert EndpointWish(port=0).is_explicit and EndpointWish(prefix="x").is_explicit
