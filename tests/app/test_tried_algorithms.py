"""What the doctor says of algorithms that cannot be used."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.unit

#: A registry in place of the tuners', and a second in place of a minute.
_PROGRAM = """
import os, signal, sys, time, types
from nni_manager.app.doctor import tried_algorithms
from nni_manager.domain.errors import MissingExtra

class Found:
    required = ()
    def __init__(self, act):
        self.create = lambda arguments: act()

def missing():
    raise MissingExtra("the assessor Extra", "scikit-learn", "gp", field="name")

acts = {
    "Crash": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "Hang": lambda: time.sleep(60),
    "Leave": lambda: sys.exit("no library"),
    "Good": lambda: None,
    "Extra": missing,
}
sys.modules["nni_manager.assessors.registry"] = types.SimpleNamespace(
    CATALOGUE=types.SimpleNamespace(find=lambda name: Found(acts[name]))
)
tried_algorithms.TIMEOUT_S = 1
tried_algorithms.main("assessor", *sys.argv[1:])
"""


def test_each_finding_is_reported_independently() -> None:
    names = ["Crash", "Hang", "Leave", "Good", "Extra"]
    done = subprocess.run([sys.executable, "-c", _PROGRAM, *names], capture_output=True, text=True, check=True)
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [name for name, _, _, _ in told] == names
    assert [error for _, _, error, _ in told] == [
        "exit code -11",
        "it was not ready within 1 s",
        "SystemExit: no library",
        "",
        "the assessor Extra needs scikit-learn, which is not installed where the manager runs",
    ]
    assert [install for _, _, _, install in told] == [""] * 4 + ["pip install 'nni-manager[gp]'"]
