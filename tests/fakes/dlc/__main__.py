"""``python -m tests.fakes.dlc``: serve on a local port until interrupted."""

from __future__ import annotations

import argparse
from pathlib import Path

from tests.fakes.dlc.containers import Containers, Source
from tests.fakes.dlc.server import Server
from tests.fakes.dlc.service import DlcService


def main() -> None:
    arguments = _arguments()
    sources = dict(_source(text) for text in arguments.source)
    image = dict(text.split("=", 1) for text in arguments.env)
    containers = Containers(folder=arguments.folder / "containers", sources=sources, image=image)
    keys = dict(text.split(":", 1) for text in arguments.key)
    service = DlcService(arguments.folder, containers, keys=keys)
    server = Server(service, port=arguments.port)
    print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
    try:
        server.serve_forever(0.05)
    except KeyboardInterrupt:
        pass


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fakes.dlc", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0: any free port, which is printed")
    parser.add_argument("--folder", type=Path, required=True, help="folder of its state")
    parser.add_argument("--key", action="append", default=[], metavar="ID:SECRET", help="an access key; repeatable")
    parser.add_argument(
        "--source", action="append", default=[], metavar="ID=FOLDER:MOUNT", help="a data source; repeatable"
    )
    parser.add_argument(
        "--env", action="append", default=[], metavar="NAME=VALUE", help="environment variable of the image"
    )
    return parser.parse_args()


def _source(text: str) -> tuple[str, Source]:
    id, _, place = text.partition("=")
    folder, _, mount = place.rpartition(":")
    return id, Source(folder=Path(folder), mount=mount)


if __name__ == "__main__":
    main()
