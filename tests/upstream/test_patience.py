"""The longer timeout that NNI's programs get in tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.upstream.warm_python import WarmPython

pytestmark = pytest.mark.upstream


def test_nnis_launcher_gives_its_manager_a_minute(tmp_path: Path, warm_nni3: WarmPython) -> None:
    program = tmp_path / "program.py"
    program.write_text("from nni.experiment.launcher import _check_rest_server as check; print(check.__defaults__)")
    ran = warm_nni3.run("python3", program, cwd=tmp_path, environment={**os.environ, "HOME": str(tmp_path)})
    assert ran.stdout == "(60, None)\n", ran.stderr
