"""What leaves the daemon of its environment."""

from __future__ import annotations

import pytest

from nni_manager.domain.environment import without_settings

pytestmark = pytest.mark.unit


def test_settings_and_token_of_the_daemon_stay_with_it() -> None:
    environment = {"PATH": "/bin", "NNI_MANAGER_TOKEN": "secret", "NNI_MANAGER_PORT": "1", "NNI_MANAGERS": "2"}
    assert without_settings(environment) == {"PATH": "/bin", "NNI_MANAGERS": "2"}
