"""The section of a config as its adapter gets it: a model, without secrets in its repr."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from nni_manager.domain.experiment import PlatformSpec
from nni_manager.platform_kit import registry
from nni_manager.platforms.openpai.config import OpenpaiConfig
from nni_manager.platforms.remote.config import RemoteConfig

pytestmark = pytest.mark.unit

SECRET = "s3cr3t-t0ken"
MACHINE = {"host": "h", "user": "u", "password": SECRET, "sshPassphrase": SECRET}
SECTION = {
    "platform": "openpai",
    "host": "http://pai",
    "username": "u",
    "token": SECRET,
    "localStorageMountPoint": "/m",
}


def test_repr_has_no_secret() -> None:
    config = RemoteConfig.model_validate({"machineList": [MACHINE]})
    assert config.machine_list[0].password == SECRET
    assert SECRET not in repr(config) + repr(OpenpaiConfig.model_validate(SECTION))


def test_config_is_the_model_of_the_platform() -> None:
    config = registry.config_of(PlatformSpec(name="openpai", service="openpai-2", settings=SECTION))
    assert isinstance(config, OpenpaiConfig) and config.token == SECRET


def test_refused_section_shows_no_secret() -> None:
    spec = PlatformSpec(name="openpai", service="openpai", settings={**SECTION, "token": [SECRET]})
    with pytest.raises(ValidationError) as raised:
        registry.config_of(spec)
    assert SECRET not in str(raised.value)
