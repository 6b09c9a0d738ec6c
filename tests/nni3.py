"""The real `nni` 3.0 from PyPI, in its own virtual environment, which is created once in ``.venvs``."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
VENV = ROOT / ".venvs" / "nni3"
#: The locked packages with hashes; `make lock` writes it.
LOCK = ROOT / "requirements" / "nni3.txt"
INSTALL = ROOT / "requirements" / "install.py"
#: Third-party modules that its programs import, most of them from SciPy.
IMPORTED = (
    "json_tricks, pandas, pkg_resources, psutil, requests, schema, scipy.optimize, scipy.spatial, scipy.stats, "
    "sklearn.datasets, sklearn.svm, typeguard, yaml"
)


def interpreter() -> Path:
    """Its interpreter. Needs PyPI the first time; raises RuntimeError with pip's output if the installation fails."""
    VENV.parent.mkdir(exist_ok=True)
    python = VENV / "bin" / "python"
    with open(VENV.parent / "nni3.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made, wanted = VENV / "made-of.json", json.dumps([sys.version, LOCK.read_text()])
        if not made.exists() or made.read_text() != wanted:
            _must([sys.executable, "-m", "venv", "--clear", "--without-pip", str(VENV)])
            # NNI imports a tenth of the installed modules; compile these now
            _must([sys.executable, str(INSTALL), str(python), str(LOCK)])
            _must([str(python), "-W", "ignore", "-c", f"import {IMPORTED}"])
            made.write_text(wanted)
    return python


def _must(command: list[str]) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")


if __name__ == "__main__":  # before the tests, so that they do not wait for it
    interpreter()
