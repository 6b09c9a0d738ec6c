"""``python -m tests.fakes.dlts``: serve until interrupted; the first line of output is the address."""

from __future__ import annotations

import argparse
import time

from tests.fakes import web
from tests.fakes.dlts.server import Dashboard


def main() -> None:
    told = _arguments()
    server = Dashboard(told.folder, time.time)
    if told.password:
        users = {told.email: {"password": told.password, "teams": [told.team]}}
        server._reset({"users": users, "mounts": [one.split("=", 1) for one in told.mount]})
    web.serve(server.app, told.host, told.port)


def _arguments() -> argparse.Namespace:
    parser = web.parser("dlts", "A fake DLWorkspace dashboard.")
    parser.add_argument("--email", default="alice@example.com")
    parser.add_argument("--password", default="")
    parser.add_argument("--team", default="platform")
    parser.add_argument("--mount", action="append", default=[], metavar="FOLDER=THERE", help="in all pods")
    return parser.parse_args()


if __name__ == "__main__":
    main()
