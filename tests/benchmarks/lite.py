"""The lite trial: Python without any SDK that reads its parameters and writes one metric record."""

from __future__ import annotations

import os
import sys
from pathlib import Path

#: Resolved first: a `python3` that is a shell shim costs more than the trial.
PYTHON = os.path.realpath(sys.executable)
COMMAND = f"{PYTHON} -I -S lite.py"
SOURCE = """
import json, os
parameters = json.load(open(os.environ["NNI_SYS_DIR"] + "/parameter.cfg"))["parameters"]
with open(os.environ["NNI_OUTBOX"], "a") as outbox:
    outbox.write(json.dumps({"type": "final", "value": parameters["x"]}) + "\\n")
"""
SPACE = {"x": {"_type": "uniform", "_value": [0, 1]}}


def write(folder: Path) -> None:
    """Puts the trial where `COMMAND` finds it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "lite.py").write_text(SOURCE)
