"""A job's containers: each with the variables of its place in the job, and data sources where the job mounts them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fakes import containers
from tests.fakes.containers import Mount


@dataclass(frozen=True, kw_only=True)
class Source:
    """A data source: a folder, and where it is mounted unless a job says otherwise."""

    folder: Path
    mount: str


@dataclass(frozen=True, kw_only=True)
class Containers:
    """`folder`: of all of them."""

    folder: Path
    sources: Mapping[str, Source]
    #: The environment that images bring.
    image: Mapping[str, str] = field(default_factory=dict)
    #: Each has mounts of its own; needs root.
    namespaces: bool = False

    def start(self, id: str, request: Mapping[str, Any]) -> int:
        """How many."""
        mounts = [self._mount(source) for source in request.get("DataSources", ())]
        for number, role in enumerate(_roles(id, request)):
            environment = {**self.image, **request.get("Envs", {}), **role}
            folder = self.folder / id / str(number)
            containers.start(folder, request["UserCommand"], environment, mounts, namespaces=self.namespaces)
        return number + 1

    def _mount(self, told: Mapping[str, str]) -> Mount:
        source = self.sources[told["DataSourceId"]]
        return Mount(source.folder, Path(told.get("MountPath") or source.mount))

    def exit_code(self, id: str, count: int) -> int | None:
        """The job's once all have ended; of several, the first that is not 0. None: it runs."""
        codes = [containers.exit_code(self.folder / id / str(number)) for number in range(count)]
        return None if None in codes else next((code for code in codes if code), 0)

    def terminate(self, id: str, count: int) -> None:
        for number in range(count):
            containers.terminate(self.folder / id / str(number))

    def destroy(self, id: str, count: int) -> None:
        for number in range(count):
            containers.destroy(self.folder / id / str(number))

    def log(self, id: str, number: int) -> str:
        """Of one of them."""
        found = ""
        for name in ("stdout", "stderr"):
            with suppress(FileNotFoundError):
                found += (self.folder / id / str(number) / name).read_text(errors="replace")
        return found


def _roles(id: str, request: Mapping[str, Any]) -> Iterator[Mapping[str, str]]:
    """The variables that the documentation names, of each container."""
    places = [(spec["Type"].lower(), index) for spec in request["JobSpecs"] for index in range(spec["PodCount"])]
    for number, (role, index) in enumerate(places):
        if request["JobType"] == "TFJob":
            cluster = {
                spec["Type"].lower(): [f"{id}-{spec['Type'].lower()}-{n}.svc:2222" for n in range(spec["PodCount"])]
                for spec in request["JobSpecs"]
            }
            task = {"type": role, "index": index}
            yield {"TF_CONFIG": json.dumps({"cluster": cluster, "task": task, "environment": "cloud"})}
        else:
            yield {
                "MASTER_ADDR": f"{id}-master-0", "MASTER_PORT": "23456", "WORLD_SIZE": str(len(places)),
                "RANK": str(number),
            }  # fmt: skip
