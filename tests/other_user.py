"""Programs that run as another user of this machine, for tests that run as root.

The interpreter may be readable only for root, so it imports its modules before it becomes that user.
"""

from __future__ import annotations

import subprocess

from tests.live_daemon import PYTHON

#: Users that exist on every machine.
NOBODY, DAEMON = 65534, 1
_BECOME = """import encodings.idna, http.client, os, socket, struct, sys
os.setgroups([]); os.setgid({uid}); os.setuid({uid})
"""


def command(uid: int, program: str, *arguments: str) -> list[str]:
    """The command that starts it. The program need not import the modules of the first line."""
    return [PYTHON, "-I", "-c", _BECOME.format(uid=uid) + program, *arguments]


def output_of(uid: int, program: str, *arguments: str, given: bytes = b"") -> str:
    """Its output; its input is `given`. Fails the test if the program fails."""
    done = subprocess.run(
        command(uid, program, *arguments), input=given, capture_output=True, timeout=60, cwd="/", check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()
