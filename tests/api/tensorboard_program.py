"""A program in place of `tensorboard`: says its address, as that does, and serves the names below its folder."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

_PROGRAM = """#!{python}
import argparse, http.server, os, sys
parser = argparse.ArgumentParser()
for name in ("--logdir", "--host"):
    parser.add_argument(name, required=True)
parser.add_argument("--port", type=int, required=True)
given = parser.parse_args()
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        names = [f"{{run}}/{{name}}" for run in sorted(os.listdir(given.logdir))
                 for name in sorted(os.listdir(os.path.join(given.logdir, run)))]
        self.send_response(200)
        self.end_headers()
        self.wfile.write(" ".join(names).encode())
    def log_message(self, *words):
        pass
server = http.server.HTTPServer((given.host, given.port), Answer)
if os.fork() == 0:  # as its data server: a child that must not be left
    server.socket.close()
    import time
    time.sleep(600)
    os._exit(0)
print(f"TensorBoard 2.0 at http://{{given.host}}:{{given.port}}/ (Press CTRL+C to quit)", file=sys.stderr, flush=True)
server.serve_forever()
"""
BROKEN = "#!/bin/sh\necho 'ImportError: no module named six' >&2\nexit 1\n"
#: The first port was another program's, which has ended at once; then it is the program `real`.
TAKEN_AT_FIRST = """#!/bin/sh
cd "$(dirname "$0")"
[ -e taken ] && exec ./real "$@"
echo > taken
echo 'ERROR: TensorBoard could not bind to port 6006, it was already in use' >&2
exit 1
"""


def install(folder: Path, text: str = "") -> Path:
    """Writes the program into a folder, which is to be on the PATH."""
    folder.mkdir(exist_ok=True)
    path = folder / "tensorboard"
    path.write_text(text or _PROGRAM.format(python=sys.executable))
    path.chmod(stat.S_IRWXU)
    return path
