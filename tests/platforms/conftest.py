"""For all platforms' tests."""

from __future__ import annotations

import pytest

from nni_manager.kubernetes.observing import followed_jobs, following
from nni_manager.platforms.scripted import platform as scripted
from nni_manager.shared_storage import job_folders, pull


@pytest.fixture(autouse=True)
def storage_is_looked_at_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is late is waited for in shorter steps, and less long."""
    monkeypatch.setattr(job_folders, "_PATIENCE_S", 0.5)
    monkeypatch.setattr(followed_jobs, "_PATIENCE_S", 0.5)
    monkeypatch.setattr(following, "_MISSING_AGAIN_S", 0.1)
    monkeypatch.setattr(scripted, "_READ_PATIENCE_S", 0.5)
    monkeypatch.setattr(pull, "SHORTEST_WAIT_S", 0.1)
    monkeypatch.setattr(pull, "_LONGEST_WAIT_AFTER_END_S", 0.3)
