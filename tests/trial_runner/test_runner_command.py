"""The start of a runner's command."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from trial_runner.launch import Streams
from trial_runner.loop import Loop
from trial_runner.runner import command
from trial_runner.runner.command import ProcessTree
from trial_runner.wire import shortage

pytestmark = pytest.mark.unit


def test_command_starts_once_a_process_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shortage, "WAITS_S", (0.01,))
    left = [errno.EAGAIN, errno.ENOMEM, errno.EAGAIN]

    def launch(text: str, directory: str, environment: dict[str, str], streams: Streams) -> int:
        if left:
            raise OSError(code := left.pop(), os.strerror(code))
        return 4711

    monkeypatch.setattr(command, "launch", launch)
    tree = ProcessTree(Loop(lambda _: None), lambda _: None)
    tree.start("true", str(tmp_path), {}, str(tmp_path / "out"), str(tmp_path / "err"))
    assert (tree.main_pid, left) == (4711, [])
