"""A driver for simulated cards: a program `nvidia-smi` and a library NVML that report the contents of a file.

The file has a line for each card, ``card UUID NAME TOTAL_MIB RESERVED_MIB``, followed by lines for its processes,
``process PID C|G|C+G MIB``. After a line ``fail SENTENCE`` both refuse; after ``hang`` they never answer.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest

_SOURCE = Path(__file__).parent / "fake_nvml.c"
_PROGRAM = Path(__file__).parent / "fake_nvidia_smi.py"


@dataclass(frozen=True)
class OnCard:
    """A process on a card; `kind` as in nvidia-smi: C, G or C+G."""

    pid: int
    mib: int = 1024
    kind: str = "C"


class FakeDriver:
    """`directory`: used only by this driver. `environment`: variables with which processes find it."""

    def __init__(
        self,
        directory: Path,
        cards: int,
        *,
        mib: int = 16384,
        reserved_mib: int = 0,
        has_library: bool = False,
        is_old: bool = False,
    ) -> None:
        """`reserved_mib`: memory of each card that the driver reserves; `is_old`: its program writes only tables."""
        self.directory = directory
        self.count = cards
        self.mib = mib
        self.reserved_mib = reserved_mib
        #: Cards of two drivers are always different cards.
        self._serial = uuid4().hex[:12]
        directory.mkdir(parents=True, exist_ok=True)
        self._state = directory / "cards"
        self.show({})
        program = directory / "nvidia-smi"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -S {_PROGRAM} {self._state} {int(is_old)} "$@"\n')
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        if has_library:
            self._build()

    @property
    def environment(self) -> dict[str, str]:
        path = os.pathsep.join((str(self.directory), os.environ["PATH"]))
        return {"PATH": path, "LD_LIBRARY_PATH": str(self.directory), "FAKE_DRIVER": str(self._state)}

    def uuid(self, index: int) -> str:
        return f"GPU-{self._serial}-{index}"

    def show(self, processes: dict[int, Sequence[OnCard]]) -> None:
        """Set the processes on the cards, by index."""
        lines = []
        for index in range(self.count):
            lines.append(f"card {self.uuid(index)} Fake {self.mib} {self.reserved_mib}")
            lines += [f"process {p.pid} {p.kind} {p.mib}" for p in processes.get(index, ())]
        self._write(lines)

    def fail(self, sentence: str) -> None:
        self._write([f"fail {sentence}"])

    def hang(self) -> None:
        self._write(["hang"])

    def remove_program(self) -> None:
        (self.directory / "nvidia-smi").unlink()

    def _write(self, lines: Sequence[str]) -> None:
        fresh = self._state.with_suffix(".new")
        fresh.write_text("".join(f"{line}\n" for line in lines))
        fresh.rename(self._state)

    def _build(self) -> None:
        compiler = shutil.which("gcc") or shutil.which("cc")
        if compiler is None:
            pytest.skip("a fake NVML needs a C compiler")
        target = self.directory / "libnvidia-ml.so.1"
        subprocess.run([compiler, "-shared", "-fPIC", "-O0", "-o", target, _SOURCE], check=True)
