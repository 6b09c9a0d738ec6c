"""`python -m tests.fakes.kubernetes --folder STATE --kubeconfig FILE`: run a cluster until interrupted."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
from pathlib import Path

from tests.fakes.kubernetes.server import Server
from tests.fakes.kubernetes.settings import Settings


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
    given = _parser().parse_args()
    asyncio.run(_serve(given))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.fakes.kubernetes", description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="persistent state of the cluster")
    parser.add_argument(
        "--kubeconfig", type=Path, help="file to write when the server is ready; default: FOLDER/kubeconfig"
    )
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--plain", action="store_true", help="HTTP instead of TLS")
    parser.add_argument("--unknown-fields", choices=("prune", "refuse"), default="prune")
    parser.add_argument("--operator", default="v1.8.1", help="version of the training operator's definitions")
    parser.add_argument("--kueue", default="", metavar="VERSION", help="version of Kueue's API; default: no Kueue")
    parser.add_argument("--managed-fields", action="store_true", help="objects as large as a real server's")
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--gpus", type=int, default=8, help="GPUs per node")
    parser.add_argument(
        "--back-off", type=float, default=10.0, help="first back-off in seconds; shorter values make tests faster"
    )
    parser.add_argument("--export", action="append", default=[], metavar="SERVER:/PATH=FOLDER", help="an NFS export")
    return parser


def _settings(given: argparse.Namespace) -> Settings:
    settings = Settings(
        given.folder.absolute(),
        given.port,
        not given.plain,
        given.unknown_fields,
        operator_version=given.operator,
        kueue=given.kueue,
        managed_fields=given.managed_fields,
        nodes=given.nodes,
        back_off=given.back_off,
        exports={address: Path(folder) for address, _, folder in (each.partition("=") for each in given.export)},
    )
    settings.capacity["nvidia.com/gpu"] = str(given.gpus)
    return settings


async def _serve(given: argparse.Namespace) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    settings = _settings(given)
    async with Server(settings) as server:
        config = server.kubeconfig(given.kubeconfig or settings.folder / "kubeconfig")
        print(server.ready_line(config), flush=True)
        await stop.wait()


if __name__ == "__main__":
    main()
