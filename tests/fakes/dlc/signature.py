"""Alibaba's signature ACS3-HMAC-SHA256, which authenticates the sender and the content of a request."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from urllib.parse import parse_qsl, quote

from tests.fakes.dlc.answers import Refused

_ALGORITHM = "ACS3-HMAC-SHA256"
_AUTHORIZATION = re.compile(rf"{_ALGORITHM} Credential=([^,]+),SignedHeaders=([^,]+),Signature=([0-9a-f]+)")
_MUST_BE_SIGNED = {"host", "x-acs-action", "x-acs-version", "x-acs-date", "x-acs-signature-nonce"}
#: Maximum error of a client's clock in seconds.
_SKEW_S = 15 * 60


class Signatures:
    """`keys`: id → secret. A nonce is valid once."""

    def __init__(self, keys: Mapping[str, str]) -> None:
        self.keys = dict(keys)
        self._nonces: set[str] = set()

    def check(
        self, method: str, path: str, query: str, headers: Mapping[str, str], body: bytes, *, now_s: float
    ) -> str:
        """Verify a request and return the id of its key. `headers`: names in lower case. Raises Refused."""
        found = _AUTHORIZATION.fullmatch(headers.get("authorization", ""))
        if found is None:
            raise Refused(400, "MissingAuthorization", "The request has no Authorization header of this form.")
        key_id, signed, signature = found.groups()
        names = signed.split(";")
        _check_headers(names, headers, body, now_s)
        if key_id not in self.keys:
            raise Refused(404, "InvalidAccessKeyId.NotFound", "Specified access key is not found.")
        text = _text_to_sign(method, path, query, headers, names)
        wanted = hmac.new(self.keys[key_id].encode(), text.encode(), hashlib.sha256).hexdigest()
        if not hmac.compare_digest(wanted, signature):
            raise Refused(400, "SignatureDoesNotMatch", "Specified signature is not matched with our calculation.")
        if headers["x-acs-signature-nonce"] in self._nonces:
            raise Refused(400, "SignatureNonceUsed", "Specified signature nonce was used already.")
        self._nonces.add(headers["x-acs-signature-nonce"])
        return key_id


def _check_headers(names: list[str], headers: Mapping[str, str], body: bytes, now_s: float) -> None:
    if missing := _MUST_BE_SIGNED - set(names):
        raise Refused(400, "IncompleteSignature", f"These headers are not signed: {', '.join(sorted(missing))}.")
    if headers.get("x-acs-content-sha256") != hashlib.sha256(body).hexdigest():
        raise Refused(400, "InvalidContentSha256", "x-acs-content-sha256 is not that of the body.")
    sent = datetime.strptime(headers["x-acs-date"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp()
    if abs(sent - now_s) > _SKEW_S:
        raise Refused(400, "InvalidTimeStamp.Expired", "Specified time stamp or date value is expired.")


def _text_to_sign(method: str, path: str, query: str, headers: Mapping[str, str], names: list[str]) -> str:
    pairs = sorted(parse_qsl(query, keep_blank_values=True))
    canonical_query = "&".join(f"{_quoted(name)}={_quoted(value)}" for name, value in pairs)
    lines = "".join(f"{name}:{headers.get(name, '').strip()}\n" for name in names)
    signed = ";".join(names)
    request = f"{method}\n{path}\n{canonical_query}\n{lines}\n{signed}\n{headers['x-acs-content-sha256']}"
    return f"{_ALGORITHM}\n{hashlib.sha256(request.encode()).hexdigest()}"


def _quoted(text: str) -> str:
    return quote(text, safe="-_.~")
