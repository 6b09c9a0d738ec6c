"""Addresses of managers elsewhere."""

from __future__ import annotations

import pytest

from nni_manager.client.address import Address, parse_url
from nni_manager.domain.errors import InvalidInput

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("url", "address", "shown"),
    [
        ("http://gpu-box:8080", Address(host="gpu-box", port=8080), "http://gpu-box:8080"),
        (" http://gpu-box/ ", Address(host="gpu-box", port=80), "http://gpu-box:80"),
        ("https://Box/nni/", Address(scheme="https", host="box", port=443, prefix="/nni"), "https://box:443/nni"),
        ("http://[::1]:9", Address(host="::1", port=9), "http://[::1]:9"),
    ],
)
def test_urls(url: str, address: Address, shown: str) -> None:
    assert parse_url(url) == address and str(address) == shown


def test_the_token_is_kept_and_not_shown() -> None:
    address = parse_url("http://gpu-box", "s3cret")
    assert address.token == "s3cret" and "s3cret" not in f"{address} {address!r}"


@pytest.mark.parametrize(
    "url", ["", "gpu-box", "gpu-box:8080", "ftp://x", "http://", "http://x:99999", "http://x/?a=b", "http://x/#a"]
)
def test_invalid_urls(url: str) -> None:
    with pytest.raises(InvalidInput, match="write, for example, http://gpu-box:8080"):
        parse_url(url)
