"""The machines that an experiment has or had are written down without their passwords, which are kept apart."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from nni_manager.config.sections.model_fields import fields_of, marks_of
from nni_manager.domain.errors import PlatformUnavailable, StoreUnavailable
from nni_manager.platform_kit.secret_texts import PrivateText
from nni_manager.platform_kit.testing import Recorder, unreachable_keeper
from nni_manager.platforms.remote import experiment_machines
from nni_manager.platforms.remote.config import Machine, RemoteConfig
from nni_manager.platforms.remote.platform import RemotePlatform
from nni_manager.store.private import FILE, ServiceText

pytestmark = pytest.mark.unit

ONE = {"host": "one", "port": 22, "user": "me", "password": "a-passw0rd-of-bees"}
TWO = {"host": "two", "port": 22, "user": "me", "sshKeyFile": "/key", "sshPassphrase": "a-phrase-of-bees"}
THREE = {"host": "three", "port": 22, "user": "me"}


def everything(folder: Path) -> str:
    return "".join(path.read_text() for path in folder.rglob("*") if path.is_file())


def test_passwords_are_kept_apart_and_come_back(tmp_path: Path) -> None:
    private = ServiceText(tmp_path / FILE, "remote")
    machines = experiment_machines.by_key([ONE, TWO, THREE])
    experiment_machines.save_machines(tmp_path / "remote", machines, private)
    assert experiment_machines.load_machines(tmp_path / "remote", private) == machines
    assert experiment_machines.load_machines(tmp_path / "remote", ServiceText(tmp_path / FILE, "remote-2")) != machines
    shown = everything(tmp_path / "remote")
    assert "one" in shown and "of-bees" not in shown
    experiment_machines.save_machines(tmp_path / "remote", experiment_machines.by_key([THREE]), private)
    assert b"of-bees" not in (tmp_path / FILE).read_bytes()


def test_passwords_of_an_earlier_version_leave_the_file(tmp_path: Path) -> None:
    private = PrivateText()
    (tmp_path / "machines.json").write_text(json.dumps([ONE, THREE]))
    machines = experiment_machines.load_machines(tmp_path, private)
    assert machines == experiment_machines.by_key([ONE, THREE])
    experiment_machines.save_machines(tmp_path, machines, private)
    assert experiment_machines.load_machines(tmp_path, private) == machines and "of-bees" not in everything(tmp_path)


def test_every_secret_field_of_a_machine_is_kept_apart() -> None:
    marked = {name for name, field in fields_of(Machine).items() if marks_of(field).get("secret")}
    assert marked == set(experiment_machines.SECRETS)


class Locked(PrivateText):
    """As a file is for a moment that another process writes to on a slow disk."""

    def read(self) -> str:
        raise StoreUnavailable("private.sqlite is locked")

    def write(self, text: str) -> None:
        """It is free again."""


@pytest.mark.parametrize("job_names", [None, ()])
async def test_no_machine_is_forgotten_while_secrets_cannot_be_read(
    tmp_path: Path, job_names: tuple[str, ...] | None
) -> None:
    """Jobs on one that is in the list no more would be lost, and run on."""
    recorder = Recorder()
    recorder.folder = tmp_path
    host = dataclasses.replace(recorder.host(unreachable_keeper()), private=Locked())
    experiment_machines.save_machines(tmp_path / host.service, experiment_machines.by_key([ONE, TWO]), PrivateText())
    before = everything(tmp_path)
    section = {"platform": "remote", "machineList": [THREE]}
    platform = RemotePlatform(RemoteConfig.model_validate(section), host)
    with pytest.raises(PlatformUnavailable, match="locked"):
        await (platform.__aenter__() if job_names is None else platform.clean(job_names))
    assert everything(tmp_path) == before
