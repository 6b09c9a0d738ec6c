"""``python -m tests.fakes.openpai``: serve until interrupted; the first line of output is the address."""

from __future__ import annotations

import argparse
import time

from tests.fakes import web
from tests.fakes.openpai.server import RestServer


def main() -> None:
    told = _arguments()
    server = RestServer(told.folder, time.time)
    if told.token or told.storage:
        server._reset(
            {
                "users": {told.user: {"tokens": told.token, "password": told.password}},
                "storages": dict(one.split("=", 1) for one in told.storage),
            }
        )
    web.serve(server.app, told.host, told.port)


def _arguments() -> argparse.Namespace:
    parser = web.parser("openpai", "A fake OpenPAI cluster.")
    parser.add_argument("--user", default="alice")
    parser.add_argument("--password", default="")
    parser.add_argument("--token", action="append", default=[], help="of the user")
    parser.add_argument("--storage", action="append", default=[], metavar="NAME=FOLDER")
    return parser.parse_args()


if __name__ == "__main__":
    main()
