"""The real `nni` 3.0 from PyPI, in a virtual environment of its own that is made once and kept in ``.venvs``."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
VENV = ROOT / ".venvs" / "nni3"
#: What is installed, with all that it needs and the hashes; `make lock` writes it.
LOCK = ROOT / "requirements" / "nni3.txt"
INSTALL = ROOT / "requirements" / "install.py"
#: What its programs import of others, most of it SciPy's.
IMPORTED = (
    "json_tricks, pandas, pkg_resources, psutil, requests, schema, scipy.optimize, scipy.spatial, scipy.stats, "
    "sklearn.datasets, sklearn.svm, typeguard, yaml"
)


def interpreter() -> Path:
    """Its Python. Needs PyPI the first time; raises RuntimeError, with what pip said, when it cannot be made."""
    VENV.parent.mkdir(exist_ok=True)
    python = VENV / "bin" / "python"
    with open(VENV.parent / "nni3.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made, wanted = VENV / "made-of.json", json.dumps([sys.version, LOCK.read_text()])
        if not made.exists() or made.read_text() != wanted:
            _must([sys.executable, "-m", "venv", "--clear", "--without-pip", str(VENV)])
            # of what it installs NNI imports a tenth, which Python compiles then
            _must([sys.executable, str(INSTALL), str(python), str(LOCK)])
            _must([str(python), "-W", "ignore", "-c", f"import {IMPORTED}"])
            made.write_text(wanted)
    return python


def _must(command: list[str]) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")


if __name__ == "__main__":  # before the tests, so that none of them waits for it
    interpreter()
