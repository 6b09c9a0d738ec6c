"""Runs one schedule and checks it, or many from the command line."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos.files import capabilities, judge
from tests.chaos.files.faults import Place
from tests.chaos.files.schedule import Restart, Step, is_strict, schedule
from tests.chaos.files.witness import Witness
from tests.fork_server.session import serving
from tests.live_daemon import Daemon, end_all

#: Seconds for a daemon's start, and for the first result.
_START_S = 15.0
_FIRST_S = 20.0
_ENDS_BEFORE = (Restart.END_BEFORE, Restart.KILL_BEFORE, Restart.DOWN_OVER)
_ENDS_DURING = (Restart.END_DURING, Restart.KILL_DURING, Restart.KILL_OVER)
_STARTS_AFTER = (Restart.DOWN_OVER, Restart.KILL_OVER)
_SETTINGS = "logLevel: info\n"

Say = Callable[[str], None]


@dataclass
class FileRun:
    """Run a schedule in an empty folder. Returns findings, one sentence each."""

    seed: int
    folder: Path
    findings: list[str] = field(default_factory=list)
    took_s: float = 0.0

    def go(self) -> list[str]:
        begun_s = time.monotonic()
        steps = schedule(self.seed)
        data = self.folder / "data"
        data.mkdir(parents=True)
        (data / "settings.yml").write_text(_SETTINGS)
        self.notes.mkdir()
        self._daemon = Daemon(data)
        try:
            self._prepare()
            for step in steps:
                self._take(step)
            self._judge(strict=is_strict(steps))
        except Exception:
            self.findings.append(traceback.format_exc(limit=4))
        finally:
            self._end()
            self.took_s = time.monotonic() - begun_s
        return self.findings

    @property
    def notes(self) -> Path:
        return self.folder / "notes"

    def _prepare(self) -> None:
        self._daemon.start()
        id_ = self._daemon.create(_config(self.notes), self._code())
        self._witness = Witness(self._daemon, id_, self.findings)
        self._place = Place(self._daemon.data, id_, self.folder / "aside")
        deadline = time.monotonic() + _FIRST_S
        while not self._witness.acknowledged and time.monotonic() < deadline:
            time.sleep(0.05)
            self._witness.acknowledge()

    def _take(self, step: Step) -> None:
        time.sleep(step.before_s)
        for fault in step.faults:
            self._place.copy(fault)
        time.sleep(step.copied_s)
        self._witness.acknowledge()
        if step.restart in _ENDS_BEFORE:
            self._stop(step.restart)
        mends = [self._place.apply(fault) for fault in step.faults]
        time.sleep(step.lasts_s / 2)
        if step.restart in _ENDS_DURING:
            self._stop(step.restart)
        if step.restart is not Restart.NONE and step.restart not in _STARTS_AFTER:
            self._start(may_fail=True)
        self._witness.look()
        time.sleep(step.lasts_s / 2)
        for mend in reversed(mends):
            mend()
        self._ensure_up()

    def _judge(self, *, strict: bool) -> None:
        self._ensure_up()
        witness, findings = self._witness, self.findings
        if not strict and not witness.is_listed():  # what a sentence about an unreadable index says
            self._stop(Restart.END_DURING)
            self._start(may_fail=False)
        if not witness.is_listed():
            findings.append("the experiment is not listed")
        findings += judge.results(witness, self.notes, strict=strict)
        if strict:
            findings += judge.goes_on(witness, self.notes)
            findings += judge.results(witness, self.notes, strict=True)
        self._ensure_up()
        findings += judge.ends(witness, self.notes)
        findings += judge.starts(self.notes, strict=strict)

    # The daemon

    def _stop(self, how: Restart) -> None:
        if not self._is_up:
            return
        if how in (Restart.END_BEFORE, Restart.END_DURING):
            self._daemon.terminate()
        else:
            self._daemon.kill()

    def _start(self, *, may_fail: bool) -> None:
        """Start the daemon; a failing start must state the reason in time."""
        begun_s = time.monotonic()
        try:
            self._daemon.start()
        except AssertionError as error:
            assert self._daemon.process is not None
            self._daemon.process.wait(_START_S)
            if not may_fail or not str(error).startswith("error: "):
                self.findings.append(f"the daemon does not start: {str(error)[-600:]}")
        if time.monotonic() - begun_s > _START_S:
            self.findings.append(f"a start took {time.monotonic() - begun_s:.0f} s")

    def _ensure_up(self) -> None:
        """Ensure that the daemon runs; a removed file may have ended it."""
        if not self._is_up:
            self._start(may_fail=False)

    @property
    def _is_up(self) -> bool:
        return self._daemon.process is not None and self._daemon.process.poll() is None

    def _end(self) -> None:
        if self._is_up:
            with suppress(Exception):
                self._daemon.kill()
        end_all(str(self.folder))

    def _code(self) -> Path:
        code = self.folder / "code"
        code.mkdir()
        shutil.copy(Path(__file__).with_name("trial.sh"), code)
        return code


def _config(notes: Path) -> dict[str, Any]:
    return {
        "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
        "trialCommand": f"sh trial.sh {notes}",
        "trialCodeDirectory": ".",
        "trialConcurrency": 2,
        "maxTrialNumber": 500,
        "tuner": {"name": "Random", "classArgs": {"optimize_mode": "maximize"}},
        "trainingService": {"platform": "local"},
    }


def run_seed(seed: int, say: Say) -> bool:
    """Run a schedule; returns whether it passed. Findings are printed with the schedule, and the folder is kept."""
    folder = Path(tempfile.mkdtemp(prefix=f"files-{seed}-", dir=_memory()))
    run = FileRun(seed, folder)
    found = run.go()
    if not found:
        say(f"seed {seed}: nothing found in {run.took_s:.1f} s")
        shutil.rmtree(folder, ignore_errors=True)
        return True
    say(f"seed {seed}: {len(found)} findings in {run.took_s:.1f} s; {folder} is kept")
    for step in schedule(seed):
        say(f"    {step}")
    for sentence in found[:_SHOWN]:
        say(f"    FAULT {sentence}")
    say(f"    again: python -m tests.chaos files --seeds {seed}")
    return False


_SHOWN = 6


def _memory() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos files", description=__doc__)
    parser.add_argument("--seeds", default="1-200", help="such as 7, 1-200 or 3,8,21 (default: %(default)s)")
    options = parser.parse_args(words)
    capabilities.drop()
    with serving():
        results = {seed: run_seed(seed, lambda line: print(line, flush=True)) for seed in _seeds(options.seeds)}
    bad = [seed for seed, is_good in results.items() if not is_good]
    print(f"{len(results)} schedules, findings in {len(bad)}" + (f": {', '.join(map(str, bad))}" if bad else ""))
    return 1 if bad else 0


def _seeds(text: str) -> list[int]:
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
