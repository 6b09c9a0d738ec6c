"""Real runners that report over TLS, to a daemon with a certificate of a private authority."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.numbered import LISTENING, Numbered
from tests.certificates import Authority
from tests.live_daemon import Daemon

pytestmark = [pytest.mark.acceptance]


def test_results_arrive_over_tls(daemon: Daemon, code: Path) -> None:
    daemon.terminate()
    folder = code.parent / "certificates"
    folder.mkdir()
    authority = Authority(folder)
    certificate, key = authority.issue("127.0.0.1")
    daemon.environment |= {
        "NNI_MANAGER_TRIAL_TLS_CERTIFICATE": str(certificate),
        "NNI_MANAGER_TRIAL_TLS_KEY": str(key),
        "NNI_MANAGER_TRIAL_TLS_AUTHORITY": str(authority.file),
    }
    daemon.start(*LISTENING)
    work = Numbered(daemon, code, trials=3)
    (trials,) = [listener for listener in daemon.call("GET", "/daemon")["listeners"] if listener["kind"] == "trials"]
    assert trials["address"].startswith("https://127.0.0.1:")
    work.wait(40)
    assert {(status, channel) for status, _, _, channel in work.ends().values()} == {("SUCCEEDED", "push")}
    assert work.stored() == {job: work.results(job) for job in work.stored()}
    assert daemon.status(work.id)["warnings"] == []
