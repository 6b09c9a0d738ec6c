"""The Python of the real `nni` with third-party modules already imported; each program is a fork of it.

Importing them takes two seconds. Each program imports `nni` itself, in its own environment. `python3`, `python` and
`nnictl` in the folder `bin` start forks: see `warm_program`.
"""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests import bare_python, nni3

#: Maximum duration of a program in seconds.
_PATIENCE_S = 120.0
#: Maximum number of concurrent requests.
_WAITING = 64
_SERVER = "import sys; sys.path.insert(0, {root!r}); from tests.upstream.warm_server import main; main({number})"
#: Starts Python with as few modules as possible.
_PROGRAM = """#!{bare} -IS
import sys
sys.path.insert(0, {root!r})
from tests.upstream.warm_program import main
main({path!r}, {python!r}, {before!r})
"""


class WarmPython:
    """`bin`: the folder of its programs, first on PATH."""

    def __init__(self, folder: Path) -> None:
        self.bin = folder
        self.python = folder / "python3"

    def run(self, *command: object, cwd: Path, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        """`command`: a program of `bin` and its arguments. No input."""
        name, *arguments = map(str, command)
        return subprocess.run(
            [str(self.bin / name), *arguments],
            cwd=cwd,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
        )


@contextmanager
def warm_python(python: Path) -> Iterator[WarmPython]:
    """Its programs exit on their own."""
    # forks do not contain threads of numerical libraries
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONPATH", None)
    with tempfile.TemporaryDirectory(prefix="nni-warm-") as folder:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(f"{folder}/socket")
            listener.listen(_WAITING)
            _write_programs(Path(folder), python)
            code = _SERVER.format(root=str(nni3.ROOT), number=listener.fileno())
            server = subprocess.Popen(
                [str(python), "-W", "ignore", "-c", code],
                stdin=subprocess.PIPE,
                pass_fds=(listener.fileno(),),
                env=environment,
            )
        try:
            yield WarmPython(Path(folder))
        finally:
            server.communicate()  # it ends with its input


def _write_programs(folder: Path, python: Path) -> None:
    for name, before in (("python3", []), ("python", []), ("nnictl", [str(python.with_name("nnictl"))])):
        text = _PROGRAM.format(
            bare=bare_python.own(), root=str(nni3.ROOT), path=f"{folder}/socket", python=str(python), before=before
        )
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
