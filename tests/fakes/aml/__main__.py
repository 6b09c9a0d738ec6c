"""``python -m tests.fakes.aml``: serve a workspace on a local port until interrupted."""

from __future__ import annotations

import argparse
from contextlib import suppress
from pathlib import Path

from tests.fakes.aml.server import Server
from tests.fakes.aml.workspace import Workspace


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fakes.aml", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0: any free port, which is printed")
    parser.add_argument("--folder", type=Path, required=True, help="folder of its state")
    parser.add_argument(
        "--token",
        action="append",
        required=True,
        help="a valid token; repeatable, the identity endpoint issues the first",
    )
    parser.add_argument("--resource", required=True, help="the workspace's id, /subscriptions/…")
    parser.add_argument("--compute", action="append", default=["gpu-cluster"], help="a cluster; repeatable")
    parser.add_argument("--identity-only", action="store_true", help="datastores refuse keys: jobs need `identity`")
    told = parser.parse_args()
    workspace = Workspace(told.folder, told.resource, computes=tuple(told.compute))
    workspace.auth_mode = "Identity" if told.identity_only else "AccessKey"
    server = Server(workspace, told.token, told.port)
    print(workspace.address, flush=True)
    with suppress(KeyboardInterrupt):
        server.serve_forever(0.05)


if __name__ == "__main__":
    main()
