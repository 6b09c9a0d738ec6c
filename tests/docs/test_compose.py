"""The compose file fits what it is made of: stages, mounted files, and the names that example experiments use."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from tests.docs.pages import DOCS, ROOT

pytestmark = pytest.mark.unit

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
STAGES = re.findall(r"^FROM \S+ AS (\w+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)


def test_compose_builds_stages_of_the_dockerfile() -> None:
    built = {name: one["build"]["target"] for name, one in SERVICES.items() if "build" in one}
    assert built and set(built.values()) <= set(STAGES)
    assert {one["image"] for one in SERVICES.values()} == {SERVICES[name]["image"] for name in built}


def test_compose_mounts_existing_files_and_volumes() -> None:
    words = [word for one in SERVICES.values() for word in one.get("entrypoint", [])]
    words += re.findall(r'"(/configs/\S+)"', (ROOT / "Dockerfile").read_text())
    files = [word for word in words if word.startswith("/configs/")]
    assert len(files) == 2 and all((ROOT / file.removeprefix("/")).is_file() for file in files)
    volumes = [volume.partition(":")[0] for one in SERVICES.values() for volume in one.get("volumes", [])]
    assert {volume for volume in volumes if not volume.startswith(".")} == set(COMPOSE["volumes"])


def test_examples_name_its_services() -> None:
    external = yaml.safe_load((ROOT / "configs" / "digits-external.yml").read_text())
    remote = yaml.safe_load((ROOT / "configs" / "digits-remote.yml").read_text())
    (machine,) = remote["trainingService"]["machineList"]
    assert external["nniManagerIp"] in SERVICES
    assert SERVICES[machine["host"]]["hostname"] == machine["host"]
    assert f"'^{machine['host']} '" in (ROOT / "configs" / "compose" / "worker.sh").read_text(), "its known host"


def test_page_names_its_files_and_volumes() -> None:
    page = (DOCS / "operations.md").read_text()
    section = page.split("## In containers\n")[1].split("\n## ")[0]
    for path in re.findall(r"/configs/\S+\.yml", section):
        assert (ROOT / path.removeprefix("/")).is_file()
    assert all(f"`{volume}`" in section for volume in COMPOSE["volumes"])
