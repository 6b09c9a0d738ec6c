"""The machines that an experiment has or had are written down without their passwords, which are kept apart."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nni_manager.config.model_fields import fields_of, marks_of
from nni_manager.platform_kit.private_text import PrivateText
from nni_manager.platforms.remote import former
from nni_manager.platforms.remote.config import Machine
from nni_manager.store.private import FILE, ServiceText

pytestmark = pytest.mark.unit

ONE = {"host": "one", "port": 22, "user": "me", "password": "a-passw0rd-of-bees"}
TWO = {"host": "two", "port": 22, "user": "me", "sshKeyFile": "/key", "sshPassphrase": "a-phrase-of-bees"}
THREE = {"host": "three", "port": 22, "user": "me"}


def everything(folder: Path) -> str:
    return "".join(path.read_text() for path in folder.rglob("*") if path.is_file())


def test_passwords_are_kept_apart_and_come_back(tmp_path: Path) -> None:
    private = ServiceText(tmp_path / FILE, "remote")
    machines = former.by_key([ONE, TWO, THREE])
    former.save(tmp_path / "remote", machines, private)
    assert former.load(tmp_path / "remote", private) == machines
    assert former.load(tmp_path / "remote", ServiceText(tmp_path / FILE, "remote-2")) != machines
    shown = everything(tmp_path / "remote")
    assert "one" in shown and "of-bees" not in shown
    former.save(tmp_path / "remote", former.by_key([THREE]), private)
    assert b"of-bees" not in (tmp_path / FILE).read_bytes()


def test_those_of_an_earlier_version_are_moved_out_of_the_file(tmp_path: Path) -> None:
    private = PrivateText()
    (tmp_path / "machines.json").write_text(json.dumps([ONE, THREE]))
    machines = former.load(tmp_path, private)
    assert machines == former.by_key([ONE, THREE])
    former.save(tmp_path, machines, private)
    assert former.load(tmp_path, private) == machines and "of-bees" not in everything(tmp_path)


def test_every_secret_field_of_a_machine_is_kept_apart() -> None:
    marked = {name for name, field in fields_of(Machine).items() if marks_of(field).get("secret")}
    assert marked == set(former.SECRETS)
