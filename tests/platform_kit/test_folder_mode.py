"""The mode of an experiment's folder on storage of containers, as it is written."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from nni_manager.kubernetes.fields import NfsStorage, PvcStorage
from nni_manager.kubernetes.jobs import storage
from nni_manager.platform_kit.folder_mode import number
from nni_manager.platforms.frameworkcontroller.config import FrameworkcontrollerConfig

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("written", "mode"),
    [
        (None, 0o711),
        (711, 0o711),
        (0o700, 0o700),
        ("0750", 0o750),
        ("0711", 0o711),
    ],
)
def test_mode_as_yaml_reads_it(written: object, mode: int) -> None:
    section = PvcStorage.model_validate({"storageType": "pvc", "path": "/mnt", "mode": written})
    assert number(section.mode) == mode
    config = FrameworkcontrollerConfig(storage=section)
    assert storage.folder_mode(config) == mode


def test_mode_that_lets_others_write_is_refused() -> None:
    with pytest.raises(ValidationError, match="'0700', '0710', '0711', '0750' or '0755'"):
        NfsStorage.model_validate({"storageType": "nfs", "server": "s", "path": "/e", "mode": "0777"})


def test_default_mode() -> None:
    assert storage.folder_mode(FrameworkcontrollerConfig()) == 0o711
