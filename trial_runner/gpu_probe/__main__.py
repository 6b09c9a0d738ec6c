"""Answers every line of its input with a reading, until its input ends."""

import json
import os
import sys
from typing import Any, Dict, List, Optional

from trial_runner.gpu_probe import nvidia_smi
from trial_runner.gpu_probe.nvidia_smi import SmiAbsent, SmiFailed
from trial_runner.gpu_probe.nvml import Nvml, NvmlAbsent, NvmlFailed

Reading = Dict[str, Any]


class Probe:
    """Keeps the library open between readings: on some machines to open it takes seconds."""

    def __init__(self) -> None:
        self._nvml: Optional[Nvml] = None

    def read(self) -> Reading:
        try:
            return _reading("nvml", self._from_library())
        except (NvmlAbsent, NvmlFailed) as error:
            why, is_absent = str(error), isinstance(error, NvmlAbsent)
        try:
            return _reading("nvidia-smi", nvidia_smi.cards())
        except SmiAbsent as error:
            return _failure("{}; {}".format(why, error), is_absent=is_absent)
        except SmiFailed as error:
            return _failure("{}; {}".format(why, error), is_absent=False)

    def _from_library(self) -> List[Dict[str, Any]]:
        self._nvml = self._nvml or Nvml()
        try:
            return self._nvml.cards()
        except NvmlFailed:
            nvml, self._nvml = self._nvml, None  # the driver may have been exchanged
            nvml.close()
            raise


def _reading(source: str, cards: List[Dict[str, Any]]) -> Reading:
    for card in cards:
        for process in card["processes"]:
            process["user"] = _user_of(process["pid"])
    return {"source": source, "cards": cards, "error": "", "is_absent": False}


def _failure(error: str, *, is_absent: bool) -> Reading:
    return {"source": "", "cards": [], "error": error, "is_absent": is_absent}


def _user_of(pid: int) -> str:
    """The user of a process; empty when there is none, as seen from here: a container has numbers of its own."""
    import pwd

    try:
        uid = os.stat("/proc/{}".format(pid)).st_uid
    except OSError:
        return ""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def main() -> int:
    probe = Probe()
    for _ in iter(sys.stdin.readline, ""):
        try:
            reading = probe.read()
        except Exception as error:
            reading = _failure("the probe failed: {!r}".format(error), is_absent=False)
        sys.stdout.write(json.dumps(reading) + "\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
