"""A user of the fake cluster, with the calls of a program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.fakes.process import FakeProcess
from tests.waiting import until


class Client:
    """`storage`: a local folder; jobs see it at /mnt/nfs."""

    def __init__(self, fake: FakeProcess, storage: Path) -> None:
        self.fake, self.storage = fake, storage

    def call(self, method: str, path: str, *, token: str | None = "t0ken", **more: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        headers |= more.pop("headers", {})
        return httpx.request(method, f"{self.fake.address}/rest-server/api/v2{path}", headers=headers, **more)

    def submit(
        self, *commands: str, name: str = "one", role: dict[str, Any] | None = None, **fields: Any
    ) -> httpx.Response:
        task = {
            "instances": 1,
            "dockerImage": "image",
            "commands": list(commands),
            "resourcePerInstance": {"cpu": 1, "memoryMB": 64, "gpu": 0},
            **(role or {}),
        }
        job = {
            "protocolVersion": 2,
            "name": name,
            "type": "job",
            "taskRoles": {"main": task},
            "prerequisites": [{"type": "dockerimage", "uri": "example/image", "name": "image"}],
            "extras": {"storages": [{"name": "nfs"}]},
            **fields,
        }
        return self.call("POST", "/jobs", content=yaml.safe_dump(job), headers={"Content-Type": "text/yaml"})

    def status(self, name: str = "one") -> dict[str, Any]:
        status: dict[str, Any] = self.call("GET", f"/jobs/alice~{name}").json()["jobStatus"]
        return status

    def ended(self, name: str = "one") -> dict[str, Any]:
        until(lambda: self.status(name)["state"] in ("SUCCEEDED", "FAILED", "STOPPED"))
        return self.status(name)

    def shown(self) -> str:
        return (self.storage / "shown").read_text()


def of_a_new_cluster(fake: FakeProcess, storage: Path) -> Client:
    """Set up a client; creates the folder `storage`."""
    storage.mkdir()
    users = {"alice": {"tokens": ["t0ken"], "password": "passw0rd"}, "bob": {"tokens": ["b0b"]}}
    storages = {"nfs": str(storage), "private": {"folder": str(storage), "share": False}}
    fake.control("reset", users=users, storages=storages)
    return Client(fake, storage)
