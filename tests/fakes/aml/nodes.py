"""Nodes of a cluster: a container for each job, with its code, mounted outputs, and bash for its command.

The working folder contains a copy of the code. Process 1 is ``/bin/bash -c COMMAND``. A cancellation sends it SIGTERM,
and half a minute later SIGKILL.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.fakes import sandbox
from tests.fakes.aml.jobs import command, output_place
from tests.fakes.aml.output_mounts import OutputMount
from tests.fakes.sandbox import Container, Mount

_GRACE_S = 30.0
_ROOT = "/mnt/azureml/cr/j/{name}"


class Nodes:
    """`folder`: persistent state; `blobs`: store of the outputs; `image`: environment variables of the image."""

    def __init__(self, folder: Path, blobs: Path, image: Mapping[str, str]) -> None:
        self._folder, self._blobs, self._image = folder, blobs, image
        folder.mkdir(parents=True, exist_ok=True)
        self._mounts: dict[str, list[OutputMount]] = {}
        #: Mounts of the image, in addition to those of the service.
        self.mounted: list[Mount] = []

    def start(self, name: str, properties: Mapping[str, Any], code: Path | None) -> None:
        """Start a job's container. `code`: folder of its code asset."""
        root, here = _ROOT.format(name=name), self._folder / name
        work = here / "wd"
        shutil.copytree(code, work, dirs_exist_ok=True) if code else work.mkdir(parents=True, exist_ok=True)
        mounts, places = [*self.mounted, Mount(work, Path(root, "exe/wd"))], {}
        for output, told in (properties.get("outputs") or {}).items():
            places[output] = f"{root}/cap/data-capability/wd/{output}"
            mount = self._mount(name, output, told)
            mounts.append(Mount(mount.inside, Path(places[output])))
        container = Container(
            folder=here / "container",
            command=["/bin/bash", "-c", command(properties["command"], places)],
            environment={**self._image, **_variables(name), **(properties.get("environmentVariables") or {})},
            mounts=mounts,
            directory=f"{root}/exe/wd",
        )
        sandbox.start(container)

    def _mount(self, name: str, output: str, told: Mapping[str, Any]) -> OutputMount:
        place = output_place(told["uri"]) if told.get("uri") else f"azureml/{name}/{output}"
        mount = OutputMount(self._folder / name / "outputs" / output, self._blobs / place)
        self._mounts.setdefault(name, []).append(mount)
        mount.sync()
        return mount

    def sync(self) -> None:
        """Upload files that jobs have closed."""
        for mounts in list(self._mounts.values()):
            for mount in mounts:
                mount.sync()

    def unmount(self, name: str) -> None:
        """Upload all files of a container that has ended."""
        for mount in self._mounts.pop(name, ()):
            mount.sync()
            mount.remove()

    def exit_code(self, name: str) -> int | None:
        return sandbox.exit_code(self._folder / name / "container")

    def terminate(self, name: str) -> None:
        sandbox.terminate(self._folder / name / "container")

    def insist(self, name: str, waited_s: float) -> None:
        if waited_s >= _GRACE_S:
            sandbox.kill(self._folder / name / "container")

    def destroy(self, name: str) -> None:
        sandbox.destroy(self._folder / name / "container")
        self._mounts.pop(name, None)

    def log(self, name: str) -> str:
        found = ""
        for one in ("stdout", "stderr"):
            with suppress(FileNotFoundError):
                found += (self._folder / name / "container" / one).read_text(errors="replace")
        return found


def _variables(name: str) -> Mapping[str, str]:
    return {"AZUREML_RUN_ID": name, "AZUREML_CR_COMPUTE_CONTEXT": "singleNode"}
