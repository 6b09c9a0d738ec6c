"""Real managers and trial runners that report another version."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.live_daemon import PYTHON

_MANAGER = """
import sys
import nni_manager
nni_manager.__version__ = sys.argv.pop(1)
from nni_manager.cli.main import nni_manager as main
main()
"""
_RUNNER = """
import sys
version, archive = sys.argv[1:]
del sys.argv[1:]  # a runner that has any is asked something
sys.path.insert(0, archive)
from trial_runner import protocol
protocol.VERSION = version
from trial_runner.__main__ import main
sys.exit(main())
"""


def manager(version: str) -> tuple[str, ...]:
    """The `program` of a daemon that reports this version."""
    return "-c", _MANAGER, version


def run_runner(version: str, archive: Path, variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a trial runner to its end, in place of a container. `variables`: its whole environment."""
    folder = Path(variables["NNI_SYS_DIR"]).parent
    return subprocess.run(
        [PYTHON, "-c", _RUNNER, version, str(archive)],
        env={"PATH": os.environ["PATH"], **variables},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=30,
    )


def path_to_runner(version: str, folder: Path) -> str:
    """A `PATH` on which `python3 runner.pyz` runs a trial runner of this version."""
    folder.mkdir()
    program = folder / "python3"
    program.write_text(f'#!/bin/sh\nexec {shlex.join([PYTHON, "-c", _RUNNER, version])} "$1"\n')
    program.chmod(0o700)
    return f"{folder}:{os.environ['PATH']}"
