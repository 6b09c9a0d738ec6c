"""The compose file fits what it is made of: stages, mounted files, and the names that example experiments use."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Any

import asyncssh
import pytest
import yaml

from configs.compose import make_keys
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
    assert len(files) == 3 and all((ROOT / file.removeprefix("/")).is_file() for file in files)
    volumes = [volume.partition(":")[0] for one in SERVICES.values() for volume in one.get("volumes", [])]
    assert {volume for volume in volumes if not volume.startswith(".")} == set(COMPOSE["volumes"])


def test_examples_name_its_services() -> None:
    external = yaml.safe_load((ROOT / "configs" / "digits-external.yml").read_text())
    remote = yaml.safe_load((ROOT / "configs" / "digits-remote.yml").read_text())
    (machine,) = remote["trainingService"]["machineList"]
    assert external["nniManagerIp"] in SERVICES
    assert SERVICES[machine["host"]]["hostname"] == machine["host"] == make_keys.HOST
    assert f"--create-home --shell /bin/sh {machine['user']}\n" in (ROOT / "Dockerfile").read_text()


def test_private_key_is_mounted_in_the_manager_alone() -> None:
    mounting = [name for name, one in SERVICES.items() if any(volume.startswith("ssh:") for volume in one["volumes"])]
    assert mounting == ["keys", "manager"] and "restart" not in SERVICES["keys"]
    assert "worker-keys:/keys:ro" in SERVICES["worker"]["volumes"]


def test_keys_are_made_once_for_manager_and_worker(tmp_path: Path) -> None:
    ssh, worker = tmp_path / "ssh", tmp_path / "worker"
    ssh.mkdir()
    worker.mkdir()
    (ssh / "known_hosts").write_text("gpu1 ssh-ed25519 AAAA\nworker ssh-ed25519 OLD\n")
    make_keys.main(ssh, worker, os.getuid())
    first = {path: path.read_bytes() for folder in (ssh, worker) for path in folder.iterdir()}
    make_keys.main(ssh, worker, os.getuid())
    assert first == {path: path.read_bytes() for folder in (ssh, worker) for path in folder.iterdir()}
    public = asyncssh.read_private_key(ssh / "id_ed25519").export_public_key().decode()
    assert (worker / "authorized_keys").read_text() == public
    host = asyncssh.read_private_key(worker / "ssh_host_ed25519_key").export_public_key().decode().strip()
    assert (ssh / "known_hosts").read_text() == f"gpu1 ssh-ed25519 AAAA\nworker {host}\n"
    assert {path.name for path in worker.iterdir()} == {"authorized_keys", "ssh_host_ed25519_key"}
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (ssh, ssh / "id_ed25519")}
    assert modes == {"ssh": 0o700, "id_ed25519": 0o600}


def test_page_names_its_files_and_volumes() -> None:
    page = (DOCS / "operations.md").read_text()
    section = page.split("## In containers\n")[1].split("\n## ")[0]
    for path in re.findall(r"/configs/\S+\.yml", section):
        assert (ROOT / path.removeprefix("/")).is_file()
    assert all(f"`{volume}`" in section for volume in COMPOSE["volumes"])
