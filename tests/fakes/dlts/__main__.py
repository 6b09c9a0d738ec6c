"""``python -m tests.fakes.dlts``: serves until it is ended; its address is its first line."""

from __future__ import annotations

import argparse
import socket
import time
from pathlib import Path

import uvicorn

from tests.fakes.dlts.server import Dashboard


def main() -> None:
    told = _arguments()
    server = Dashboard(told.folder, time.time)
    if told.password:
        server._reset({"users": {told.email: {"password": told.password, "teams": [told.team]}}})
    listening = socket.create_server((told.host, told.port))
    print(f"http://{told.host}:{listening.getsockname()[1]}", flush=True)
    config = uvicorn.Config(server.app, log_level="critical", access_log=False, timeout_graceful_shutdown=1)
    uvicorn.Server(config).run(sockets=[listening])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fakes.dlts", description="A fake DLWorkspace dashboard.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--folder", type=Path, required=True, help="what outlives a restart")
    parser.add_argument("--email", default="alice@example.com")
    parser.add_argument("--password", default="")
    parser.add_argument("--team", default="platform")
    return parser.parse_args()


if __name__ == "__main__":
    main()
