"""The doctor's findings on places that other users can reach."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nni_manager.app.doctor import data_directory
from nni_manager.app.doctor.finding import CheckFinding, CheckOutcome
from nni_manager.config import experiment_file
from nni_manager.store.folder import Folder

pytestmark = pytest.mark.unit

CONFIG = """\
trialCommand: 'true'
trialConcurrency: 1
tuner: {name: Random}
searchSpace: {x: {_type: uniform, _value: [0, 1]}}
"""
SCRIPTED = CONFIG + "trainingService: {platform: scripted, token: %s}\n"


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    path.mkdir(mode=0o700)
    return path


def looked(data: Path, **environment: str) -> dict[str, CheckFinding]:
    return {one.check: one for one in data_directory.look_at_shared_places(data, environment)}


def of_file(path: Path) -> list[str]:
    reading = experiment_file.read_file(path, environment={})
    return [f"{one.sentence}; {one.advice}" for one in data_directory.look_at_file(path, reading.spec, reading.secrets)]


@pytest.mark.parametrize(("mask", "verdict"), [(0o000, CheckOutcome.WARN), (0o002, CheckOutcome.WARN), (0o022, "OK")])
def test_a_umask_that_lets_others_write(data: Path, mask: int, verdict: str) -> None:
    with umask(mask):
        assert looked(data)["umask"].verdict == verdict
        assert os.umask(mask) == mask, "it is as it was"


def test_folder_of_sockets(data: Path, tmp_path: Path) -> None:
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    assert looked(data, XDG_RUNTIME_DIR=str(runtime))["sockets"].verdict is CheckOutcome.OK
    found = looked(data)["sockets"]
    assert found.verdict is CheckOutcome.WARN and "XDG_RUNTIME_DIR" in found.advice
    (runtime / "nni-manager").rmdir()
    (runtime / "nni-manager").symlink_to(tmp_path)
    assert looked(data, XDG_RUNTIME_DIR=str(runtime))["sockets"].verdict is CheckOutcome.FAIL


def test_settings_that_others_read_or_write(data: Path) -> None:
    path = data / "settings.yml"
    path.write_text("port: 8080\n")
    path.chmod(0o644)
    assert "privacy" not in looked(data)
    path.write_text("token: 0123456789abcdef\n")
    found = looked(data)["privacy"]
    assert found.verdict is CheckOutcome.FAIL and "holds a token" in found.sentence
    assert "0123456789abcdef" not in found.sentence + found.advice
    path.chmod(0o602)
    assert "others may write" in looked(data)["privacy"].sentence


def test_folders_readable_by_others(data: Path) -> None:
    folder = Folder(data / "abc")
    folder.create(data)
    assert "privacy" not in looked(data)
    folder.path.chmod(0o755)
    assert "others may read or write the folders of abc" in looked(data)["privacy"].sentence


def test_an_experiment_file_with_secrets_that_others_read(tmp_path: Path) -> None:
    path = tmp_path / "experiment.yml"
    path.write_text(SCRIPTED % "s3cret-of-the-bees")
    path.chmod(0o644)
    (found,) = of_file(path)
    assert "which holds scripted.token" in found and "s3cret" not in found
    path.chmod(0o600)
    assert of_file(path) == []
    (tmp_path / "secret").write_text("s3cret")
    (tmp_path / "secret").chmod(0o644)
    path.write_text(SCRIPTED % "file:secret")
    (found,) = of_file(path)
    assert f"others may read {tmp_path}/secret" in found


def test_files_and_folders_that_others_write(tmp_path: Path) -> None:
    code, point = tmp_path / "code", tmp_path / "storage"
    for folder in (code, point):
        folder.mkdir()
        folder.chmod(0o777)
    path = tmp_path / "experiment.yml"
    path.write_text(
        CONFIG + "trialCodeDirectory: code\ntrainingService: {platform: local}\nsharedStorage: {storageType: NFS,"
        " nfsServer: s, exportedDirectory: /e, localMountPoint: storage, remoteMountPoint: /r,"
        " localMounted: usermount}\n"
    )
    path.chmod(0o662)
    sentences = "\n".join(of_file(path))
    for words in (f"others may write {path}", f"others may write {code}", f"replace files in {point}"):
        assert words in sentences
    path.chmod(0o600)
    code.chmod(0o1777)
    point.chmod(0o1777)
    assert of_file(path) == []


@pytest.mark.parametrize(
    "section",
    [
        "{platform: dlts, dashboard: 'https://dlts.example.com/', team: t, email: e, password: '${P}',"
        " localStorageMountPoint: HERE, containerStorageMountPoint: /mnt}",
        "{platform: frameworkcontroller, storage: {storageType: nfs, server: s, path: /e, localMountPoint: HERE},"
        " taskRoles: [{name: worker, taskNumber: 1, command: 'true', cpuNumber: 1, memorySize: 1GB,"
        " frameworkAttemptCompletionPolicy: {minFailedTaskCount: 1, minSucceedTaskCount: 1}}]}",
        "{platform: frameworkcontroller, storage: {storageType: pvc, path: HERE, claimName: c},"
        " taskRoles: [{name: worker, taskNumber: 1, command: 'true', cpuNumber: 1, memorySize: 1GB,"
        " frameworkAttemptCompletionPolicy: {minFailedTaskCount: 1, minSucceedTaskCount: 1}}]}",
    ],
    ids=["dlts", "nfs", "pvc"],
)
def test_storage_writable_by_others_is_reported(tmp_path: Path, section: str) -> None:
    point = tmp_path / "storage"
    (point / "nni").mkdir(parents=True)
    for folder in (point, point / "nni"):
        folder.chmod(0o777)
    path = tmp_path / "experiment.yml"
    path.write_text(CONFIG + f"trainingService: {section}\n".replace("HERE", str(point)))
    path.chmod(0o600)
    reading = experiment_file.read_file(path, environment={"P": "s3cret"})
    found = [one.sentence for one in data_directory.look_at_file(path, reading.spec, reading.secrets)]
    for folder, sentence in zip((point, point / "nni"), found, strict=True):
        assert f"every user may replace files in {folder}," in sentence
    for folder in (point, point / "nni"):
        folder.chmod(0o1777)
    assert list(data_directory.look_at_file(path, reading.spec, reading.secrets)) == []
