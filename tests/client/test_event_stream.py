"""Server-sent events as they come over the line."""

from __future__ import annotations

import pytest

from nni_manager.client.connection import read_events

pytestmark = pytest.mark.unit


def test_events_are_put_together_and_comments_left_out() -> None:
    text = b':\n\nevent: state\ndata: {"a":\ndata: 1}\n\n: still here\n\ndata:2\r\n\r\n\n'
    assert list(read_events(text.splitlines(keepends=True))) == [{"a": 1}, 2]


def test_an_unfinished_event_is_left_out() -> None:
    assert list(read_events([b"data: 1\n"])) == []
