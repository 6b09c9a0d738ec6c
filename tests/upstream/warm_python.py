"""The Python of the real `nni`, which has imported already what `nni` imports of others: each program is a fork of it.

Importing them takes two seconds a process. `nni` itself is imported by each program anew, in its
own environment.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests import nni3

#: Seconds that a program may take.
_PATIENCE_S = 120.0
#: Reads orders, a line of JSON each; answers the exit code of each program, once it has ended.
_SERVER = """
import json, os, runpy, sys

def run(order):
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["environment"])
    for descriptor, name, mode in ((0, os.devnull, os.O_RDONLY), (1, order["out"], os.O_WRONLY),
                                   (2, order["err"], os.O_WRONLY)):
        opened = os.open(name, mode)
        os.dup2(opened, descriptor)
        os.close(opened)
    sys.stdin = open(0, closefd=False)
    sys.argv = order["command"]
    sys.path[0] = os.path.dirname(sys.argv[0]) or ""
    if sys.argv[0] == "-c":
        code = sys.argv.pop(1)
        sys.path[0] = ""
        exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
    else:
        runpy.run_path(sys.argv[0], run_name="__main__")

print("ready", flush=True)
for line in iter(sys.stdin.readline, ""):
    child = os.fork()
    if child == 0:
        run(json.loads(line))
        sys.exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class WarmPython:
    """Runs one program at a time. `python`: the interpreter that it is."""

    def __init__(self, python: Path, server: subprocess.Popen[str]) -> None:
        self.python = python
        self._server = server

    def run(
        self, command: Sequence[str], *, cwd: Path, environment: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """`command`: a script of this Python and its arguments, or `-c`, code and its arguments. No input."""
        with tempfile.TemporaryDirectory() as folder:
            out, err = Path(folder, "out"), Path(folder, "err")
            for file in (out, err):
                file.touch()
            order = {
                "command": list(command),
                "cwd": str(cwd),
                "environment": dict(environment),
                "out": str(out),
                "err": str(err),
            }
            code = self._ask(json.dumps(order))
            return subprocess.CompletedProcess(command, code, out.read_text(), err.read_text())

    def nnictl(self, *words: object, cwd: Path, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        command = [str(self.python.with_name("nnictl")), *map(str, words)]
        return self.run(command, cwd=cwd, environment=environment)

    def _ask(self, order: str) -> int:
        assert self._server.stdin is not None and self._server.stdout is not None
        self._server.stdin.write(order + "\n")
        self._server.stdin.flush()
        readable, _, _ = select.select([self._server.stdout], [], [], _PATIENCE_S)
        assert readable, f"it has not ended within {_PATIENCE_S} s: {order}"
        return int(self._server.stdout.readline())


@contextmanager
def warm_python(python: Path) -> Iterator[WarmPython]:
    """Ends with what it still runs."""
    # threads of numerical libraries do not come along into a fork
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONPATH", None)
    with subprocess.Popen(
        [str(python), "-W", "ignore", "-c", f"import {nni3.IMPORTED}{_SERVER}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as server:
        try:
            assert server.stdout is not None and server.stdout.readline() == "ready\n"
            yield WarmPython(python, server)
        finally:
            server.kill()
