"""The mode of an experiment's folder on storage of containers, as it is written."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from nni_manager.kubernetes.fields import NfsStorage, PvcStorage
from nni_manager.platform_kit.section_model import folder_mode
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
    assert folder_mode(section.mode) == mode


def test_mode_that_lets_others_write_is_refused() -> None:
    with pytest.raises(ValidationError, match="'0700', '0710', '0711', '0750' or '0755'"):
        NfsStorage.model_validate({"storageType": "nfs", "server": "s", "path": "/e", "mode": "0777"})


def test_default_mode() -> None:
    assert FrameworkcontrollerConfig().pod_storage is None and folder_mode(None) == 0o711
