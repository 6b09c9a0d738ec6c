"""``python -m tests.fakes.openpai``: serves until it is ended; its address is its first line."""

from __future__ import annotations

import argparse
import socket
import time
from pathlib import Path

import uvicorn

from tests.fakes.openpai.server import RestServer


def main() -> None:
    told = _arguments()
    server = RestServer(told.folder, time.time)
    if told.token or told.storage:
        server._reset({
            "users": {told.user: {"tokens": told.token, "password": told.password}},
            "storages": dict(one.split("=", 1) for one in told.storage),
        })  # fmt: skip
    server.behave(namespaces=told.namespaces)
    listening = socket.create_server((told.host, told.port))
    print(f"http://{told.host}:{listening.getsockname()[1]}", flush=True)
    config = uvicorn.Config(server.app, log_level="critical", access_log=False, timeout_graceful_shutdown=1)
    uvicorn.Server(config).run(sockets=[listening])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fakes.openpai", description="A fake OpenPAI cluster.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--folder", type=Path, required=True, help="what outlives a restart")
    parser.add_argument("--user", default="alice")
    parser.add_argument("--password", default="")
    parser.add_argument("--token", action="append", default=[], help="of the user")
    parser.add_argument("--storage", action="append", default=[], metavar="NAME=FOLDER")
    parser.add_argument("--namespaces", action="store_true", help="storage is mounted, in a namespace; needs root")
    return parser.parse_args()


if __name__ == "__main__":
    main()
