"""Checks after the last fault."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import psutil

from tests.chaos.files.witness import STOP_BOUND_S, Result, Witness, words_of
from tests.live_daemon import processes_of

#: Seconds for an experiment to continue, and for restored files to be read.
_SETTLED_S = 15.0
#: Seconds for ended processes to disappear.
_GONE_S = 5.0
_LOOK_S = 0.1

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Reported:
    """A result that a trial wrote into an outbox."""

    result: Result
    outbox: Path


@dataclass(frozen=True, slots=True)
class Started:
    job: str
    pid: int
    trial: str
    sequence: int
    parameters: str


def notes(folder: Path) -> tuple[list[Started], list[Reported]]:
    """Notes of the trials."""
    started, reported = [], []
    for path in folder.iterdir():
        lines = [line.split(" ", 4) for line in path.read_text().splitlines()]
        begun = [Started(path.name, int(one[1]), one[2], int(one[3]), one[4]) for one in lines if one[0] == "started"]
        started += begun
        for word, *rest in lines:
            if word == "reported" and begun:
                result = Result(begun[0].trial, _attempt(path.name, begun[0].trial), rest[0], rest[1])
                reported.append(Reported(result, Path(rest[2])))
    return started, reported


def _attempt(job: str, trial: str) -> int:
    tail = job.partition(trial)[2].lstrip("_-")
    return int(tail) if tail.isdigit() else 1


def results(witness: Witness, folder: Path, *, strict: bool) -> list[str]:
    """Check that acknowledged results exist; unless `strict`, their outbox may be lost too if the trial is named."""
    missing = _until(lambda: _missing(witness, folder, strict=strict), lambda found: not found)
    more = "" if strict else ", and its trial is not named"
    return [f"acknowledged result {one} is missing{more}" for one in missing]


def _missing(witness: Witness, folder: Path, *, strict: bool) -> list[Result]:
    present = witness.results()
    missing = witness.acknowledged - (present or set())
    if strict or not missing:
        return sorted(missing, key=str)
    shown = witness.ask("GET", f"/experiments/{witness.experiment}").text
    if "nni.sqlite" in shown:  # the database is named, which nothing can be read from
        return []
    words = words_of(witness.daemon) + shown
    rows = {trial["id"]: f"{trial['message']} {trial['lastWords']}" for trial in witness.trials() or ()}
    outboxes = {one.result: one.outbox for one in notes(folder)[1]}
    return sorted(
        (
            one
            for one in missing
            if not (one.trial in words or (_is_in_outbox(one, outboxes) is False and rows.get(one.trial, "").strip()))
        ),
        key=str,
    )


def _is_in_outbox(result: Result, outboxes: dict[Result, Path]) -> bool:
    outbox = outboxes.get(result)
    if outbox is None or not outbox.exists():
        return False
    return f'"value": {result.value}}}' in outbox.read_text(errors="replace")


def goes_on(witness: Witness, folder: Path) -> list[str]:
    """Check that more trials succeed; a stopped or held experiment is resumed once."""
    before = len(notes(folder)[0])

    def has_gone_on() -> bool:
        status = witness.status() or {}
        if status.get("status") == "DONE" or len(notes(folder)[0]) > before + 2:
            return True
        if status.get("hold") or status.get("status") == "STOPPED":
            witness.ask("POST", f"/experiments/{witness.experiment}/resume")
        return False

    if _until(has_gone_on, bool, pause_s=0.3):
        return []
    status = witness.status() or {}
    shown = {name: status.get(name) for name in ("status", "hold", "errors", "warnings", "counts")}
    return [f"no further trial starts: {shown}"]


def starts(folder: Path, *, strict: bool) -> list[str]:
    """Check that every job started once, and that every trial id and sequence number has one set of parameters.

    Unless `strict`, a job may start again: a truncated write-ahead log can lose the end of a job that its keeper has
    forgotten.
    """
    started, _ = notes(folder)
    counts = Counter(one.job for one in started)
    found = [f"job {job} started {count} times" for job, count in counts.items() if strict and count > 1]
    parameters, numbers = defaultdict(set), defaultdict(set)
    for one in started:
        parameters[one.trial].add((one.sequence, one.parameters))
        numbers[one.sequence].add(one.trial)
    found += [f"trial id {trial} was used for {sorted(used)}" for trial, used in parameters.items() if len(used) > 1]
    found += [f"trials {sorted(ids)} have the number {number}" for number, ids in numbers.items() if len(ids) > 1]
    return found


def ends(witness: Witness, folder: Path) -> list[str]:
    """Check that a stop ends every trial process, a delete succeeds, and nothing runs after the daemon's end."""
    path = f"/experiments/{witness.experiment}"
    stopped = witness.ask("POST", f"{path}/stop", STOP_BOUND_S)
    found = [] if stopped.is_success else [f"stop answered {stopped.code}: {stopped.text[:300]}"]
    found += [f"process {pid} of a trial runs after the stop" for pid in _alive(folder)]
    deleted = witness.ask("DELETE", path, STOP_BOUND_S)
    if not deleted.is_success:
        found.append(f"delete answered {deleted.code}: {deleted.text[:300]}")
    try:
        witness.daemon.terminate()
    except AssertionError as error:
        found.append(str(error)[:300])
    left = processes_of(str(witness.daemon.data))
    _, alive = psutil.wait_procs(left, timeout=_GONE_S)
    return found + [f"process {one.pid} runs after stop and delete: {_command(one)}" for one in alive]


def _alive(folder: Path) -> list[int]:
    """Processes of trials that do not end in time."""
    started, _ = notes(folder)
    left = [process for process in processes_of(str(folder)) if process.pid in {one.pid for one in started}]
    return [process.pid for process in psutil.wait_procs(left, timeout=_GONE_S)[1]]


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())[:200]
    except psutil.Error:
        return "ended just now"


def _until(look: Callable[[], T], is_good: Callable[[T], bool], pause_s: float = _LOOK_S) -> T:
    deadline = time.monotonic() + _SETTLED_S
    found = look()
    while not is_good(found) and time.monotonic() < deadline:
        time.sleep(pause_s)
        found = look()
    return found
