"""What tests of a service have submitted, and its removal when they did not come to it: names of jobs, noted before
each submission."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections import defaultdict
from pathlib import Path

from nni_manager.domain.errors import NniManagerError
from tests.platforms.live.live_world import LiveWorld, Service


def remove(ledger: Path, name: str, config: Path, address: str, patience_s: float) -> list[str]:
    """What could not be removed of what a ledger has, a line each. Quiet for what is gone."""
    service = Service(name=name, config=config, address=address, patience_s=patience_s, without=frozenset())
    noted: dict[tuple[str, str], list[str]] = defaultdict(list)
    for line in ledger.read_text().splitlines() if ledger.exists() else ():
        experiment_id, folder, job = json.loads(line)
        noted[experiment_id, folder].append(job)
    return [left for place, jobs in noted.items() if (left := asyncio.run(_remove(service, *place, jobs)))]


async def _remove(service: Service, experiment_id: str, folder: str, jobs: list[str]) -> str:
    with tempfile.TemporaryDirectory(prefix="nni-live-") as directory:
        world = LiveWorld(Path(directory), service)
        world.recorder.experiment_id, world.recorder.folder = experiment_id, Path(folder)
        world.adopt(jobs)
        try:
            async with world:
                return ""
        except (NniManagerError, TimeoutError, AssertionError, OSError) as error:
            return f"{', '.join(jobs)}: {error!r}"
