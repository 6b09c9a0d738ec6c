"""Programs that run as another user of this machine, for tests that are root. The interpreter may lie where only root
reads, so it imports what it needs before it becomes that user."""

from __future__ import annotations

import subprocess

from tests.live_daemon import PYTHON

#: Users that every machine has.
NOBODY, DAEMON = 65534, 1
_BECOME = """import encodings.idna, http.client, os, socket, struct, sys
os.setgroups([]); os.setgid({uid}); os.setuid({uid})
"""


def command(uid: int, program: str, *arguments: str) -> list[str]:
    """What starts it. The modules of the first line need no import."""
    return [PYTHON, "-I", "-c", _BECOME.format(uid=uid) + program, *arguments]


def output_of(uid: int, program: str, *arguments: str, given: bytes = b"") -> str:
    """What it prints; it reads `given`. Fails the test when the program fails."""
    done = subprocess.run(
        command(uid, program, *arguments), input=given, capture_output=True, timeout=60, cwd="/", check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()
