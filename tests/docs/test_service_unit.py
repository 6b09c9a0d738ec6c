"""The systemd unit of docs/operations.md: systemd accepts it, and local trials work under it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.docs.pages import DOCS

pytestmark = pytest.mark.unit

PAGE = (DOCS / "operations.md").read_text()
UNIT = PAGE.split("```ini\n", 1)[1].split("```", 1)[0]
SETTINGS = set(re.findall(r"^(\w+)=", UNIT, re.MULTILINE))


def test_unit_has_no_setting_that_breaks_trials() -> None:
    rows = re.findall(r"^\| (`[^|]+`) \|", PAGE.split("Local trials inherit the sandbox")[1], re.MULTILINE)
    left_out = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert {"PrivateTmp", "PrivateDevices", "ProtectClock", "ProtectHome"} <= left_out
    assert not left_out & SETTINGS and {"NoNewPrivileges", "ProtectSystem", "RestrictSUIDSGID"} <= SETTINGS


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="this machine has no systemd-analyze")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "nni-manager.service"
    unit.write_text(UNIT.replace("/opt/nni-manager/bin/nni-manager", "/bin/sh"))
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert "Unknown" not in done.stderr and "Failed to parse" not in done.stderr, done.stderr
