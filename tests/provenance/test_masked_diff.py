"""Masking of a diff takes a time in proportion to its length, whatever stands in it."""

from __future__ import annotations

import time

import pytest

from nni_manager.platform_kit.secret_texts import SecretTexts
from nni_manager.provenance.masked_diff import masked

pytestmark = pytest.mark.unit

#: A quarter of what is kept of a diff.
_MOST_BYTES = 2**18
#: Seconds: what is quadratic takes many times as long.
_MOST_S = 8.0

PIECES = [
    "token",
    "token=",
    "token: ",
    "token=' ",
    "token='",
    'token="\\',
    'a="token=\\"',
    "token-token.",
    "password_",
    "TOKEN=a1",
    "--token ",
    "--token=abcdefg ",
    "(' ,",
    "('token', ",
    "'\"",
    "\\",
    " ",
    "\t",
    "-",
    "1",
    "a: b[",
    "token: a | b[",
    "auth=('",
    "-----BEGIN A-----",
    "-----BEGIN ",
    "-----END A-----",
    "://",
    "eyJaaaaaaaa",
    "sk-a",
    "Bearer ",
    "?sig=",
]


@pytest.mark.parametrize("length", [100, 4000, _MOST_BYTES], ids=["short", "long", "one"])
@pytest.mark.parametrize("piece", PIECES)
async def test_long_diff_of_any_shape_is_masked_in_time(piece: str, length: int) -> None:
    line = "+token" + piece * ((length - 10) // len(piece)) + "\n"
    text = line * (_MOST_BYTES // len(line))
    began = time.process_time()
    await masked(text.encode(), SecretTexts("open sesame"))
    assert time.process_time() - began < _MOST_S


@pytest.mark.parametrize("line", ["\n", " \n", "+\n", "+token\n", "-----BEGIN A-----\n", "-----END A-----\n", "@@\n"])
async def test_long_diff_of_short_lines_is_masked_in_time(line: str) -> None:
    began = time.process_time()
    await masked((line * (_MOST_BYTES // len(line))).encode(), SecretTexts("open sesame"))
    assert time.process_time() - began < _MOST_S
