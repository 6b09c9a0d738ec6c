"""A job's containers: each with the variables of its role and index, and the data sources that the job mounts.

Process 1 is ``/bin/sh -c UserCommand``. Each has its own root, which contains only the data sources of this machine.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fakes import sandbox
from tests.fakes.sandbox import Container, Mount

_DIRECTORY = "/root"


@dataclass(frozen=True, kw_only=True)
class Source:
    """A data source: a folder, and its default mount path."""

    folder: Path
    mount: str


@dataclass(frozen=True, kw_only=True)
class Containers:
    """`folder`: of all containers; `image`: environment variables of the image."""

    folder: Path
    sources: Mapping[str, Source]
    image: Mapping[str, str] = field(default_factory=dict)

    def start(self, id: str, request: Mapping[str, Any]) -> int:
        """Start a job's containers and return their number."""
        mounts = [self._mount(source) for source in request.get("DataSources", ())]
        places = list(_places(id, request))
        for number, variables in enumerate(places):
            container = Container(
                folder=self._place(id, number),
                command=["/bin/sh", "-c", request["UserCommand"]],
                environment={**self.image, **variables, **request.get("Envs", {})},
                mounts=mounts,
                directory=_DIRECTORY,
            )
            sandbox.start(container)
        return len(places)

    def _mount(self, told: Mapping[str, str]) -> Mount:
        source = self.sources[told["DataSourceId"]]
        return Mount(source.folder, Path(told.get("MountPath") or source.mount))

    def exit_codes(self, id: str, count: int) -> list[int] | None:
        """The exit codes when all have ended; None: some run."""
        codes = [sandbox.exit_code(self._place(id, number)) for number in range(count)]
        return None if None in codes else [code for code in codes if code is not None]

    def terminate(self, id: str, count: int) -> None:
        for number in range(count):
            sandbox.terminate(self._place(id, number))

    def kill(self, id: str, count: int) -> None:
        for number in range(count):
            sandbox.kill(self._place(id, number))

    def destroy(self, id: str, count: int) -> None:
        for number in range(count):
            sandbox.destroy(self._place(id, number))

    def log(self, id: str, number: int) -> str:
        """Output of one container."""
        found = ""
        for name in ("stdout", "stderr"):
            with suppress(FileNotFoundError):
                found += (self._place(id, number) / name).read_text(errors="replace")
        return found

    def _place(self, id: str, number: int) -> Path:
        return self.folder / id / str(number)


def _places(id: str, request: Mapping[str, Any]) -> Iterator[Mapping[str, str]]:
    """The variables of each container by role and index, as frameworks expect them."""
    roles = [(spec["Type"].lower(), index) for spec in request["JobSpecs"] for index in range(spec["PodCount"])]
    for number, (role, index) in enumerate(roles):
        if request["JobType"] == "TFJob":
            cluster: dict[str, list[str]] = {}
            for kind, one in roles:
                cluster.setdefault(kind, []).append(f"{id}-{kind}-{one}.t{id}.svc:2222")
            told = {"cluster": cluster, "task": {"type": role, "index": index}, "environment": "cloud"}
            yield {"TF_CONFIG": json.dumps(told)}
        else:
            yield {
                "MASTER_ADDR": f"{id}-master-0",
                "MASTER_PORT": "23456",
                "WORLD_SIZE": str(len(roles)),
                "RANK": str(number),
            }
