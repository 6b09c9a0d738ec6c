"""Certificates of authorities: read once, and again when others are named or the file has changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nni_manager.web_services import authorities
from tests.certificates import Authority

pytestmark = pytest.mark.unit


def test_accounts_share_authorities_until_file_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    public = authorities.trusted()
    assert authorities.trusted() is public
    file = Authority(tmp_path).file
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    private = authorities.trusted()
    assert len(private.get_ca_certs()) == 1 < len(public.get_ca_certs())
    assert authorities.trusted() is private
    os.utime(file, (1, 1))
    assert authorities.trusted() is not private
