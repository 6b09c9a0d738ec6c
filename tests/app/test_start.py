"""Modules that a started daemon has imported; others are imported on first use, so that the start is fast."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.live_daemon import Daemon

#: Libraries and modules of ours that no daemon needs before its first experiment.
NOT_YET = {
    "aiohttp",
    "asyncssh",
    "certifi",
    "cryptography",
    "httpx",
    "jinja2",
    "kubernetes_asyncio",
    "numpy",
    "optuna",
    "pathspec",
    "prometheus_client",
    "psutil",
    "requests",
    "yaml",
    "nni_manager.api.metrics",
    "nni_manager.config.reading.yaml_reader",
    "nni_manager.platforms",
    "nni_manager.tuners.optuna_tpe",
}
#: `serve`; what was imported when it said `ready` is written next to the data directory.
_PROGRAM = """
import sys
from pathlib import Path
from nni_manager.app import serve
from nni_manager.cli.main import nni_manager
say_ready = serve._say_ready
def tell(settings, descriptor, **auto):
    Path(settings.data_dir, "imported").write_text("\\n".join(sys.modules))
    say_ready(settings, descriptor, **auto)
serve._say_ready = tell
nni_manager(prog_name="nni-manager")
"""


@pytest.mark.acceptance
def test_a_started_daemon_has_imported_no_more_than_it_needs(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path / "data", program=("-c", _PROGRAM), environment={"NNI_MANAGER_PORT": "0"})
    daemon.data.mkdir()
    daemon.start()
    try:
        imported = set((daemon.data / "imported").read_text().splitlines())
    finally:
        daemon.terminate()
    assert "nni_manager.api.application" in imported
    assert sorted(NOT_YET & imported) == []
