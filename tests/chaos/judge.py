"""Checks the outcome of every trial against its notes, and the leftovers."""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from nni_manager.domain.trial import PLATFORM_RETRIES
from tests.chaos.faults import Job, Struck
from tests.live_daemon import Daemon
from tests.namespaced_machines import NamespacedMachine

#: Tolerance of the daemon's number of descriptors: a connection may just be opening.
_FEW = 6
#: Allowed growth of the daemon's memory in bytes: it stores number and state of trials.
_GROWTH = 96 * 2**20
#: Seconds for leftovers to disappear: a keeper exits a while after its last job.
_GONE_S = 60.0
_SHOWN = 12

Json = dict[str, Any]


@dataclass
class Findings:
    """Findings, one sentence each, and figures of the run."""

    faults: list[str] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)

    def add(self, sentence: str) -> None:
        self.faults.append(sentence)

    def __str__(self) -> str:
        lines = [f"{name}: {value}" for name, value in self.figures.items()]
        more = len(self.faults) - _SHOWN
        lines += [f"FAULT {sentence}" for sentence in self.faults[:_SHOWN]]
        return "\n".join([*lines, *([f"and {more} more"] if more > 0 else [])])


@dataclass(frozen=True, slots=True)
class Size:
    """Descriptors and memory (bytes) of the daemon, and sshd sessions on all machines."""

    descriptors: int
    memory: int
    sessions: int


def size(daemon: Daemon, machines: list[NamespacedMachine]) -> Size:
    assert daemon.process is not None
    process = psutil.Process(daemon.process.pid)
    sessions = sum(_is_session(one) for machine in machines for one in machine.processes())
    return Size(process.num_fds(), process.memory_info().rss, sessions)


@dataclass(frozen=True, slots=True)
class Faults:
    """All faults of the run. `addresses`: of the machines, by number; `grace_s`: allowed absence of a machine."""

    made: list[Struck]
    addresses: list[str]
    grace_s: float

    def explain(self, attempt: Json, lines: list[str]) -> bool:
        """Whether a fault can have ended the attempt's job. `lines`: the job's notes."""
        if attempt["place"] not in self.addresses or attempt["endedMs"] is None:
            return False
        job = Job(
            machine=self.addresses.index(attempt["place"]),
            ended_ms=attempt["endedMs"],
            has_begun=bool(lines),
            started_ms=attempt["startedMs"] or attempt["submittedMs"],
        )
        return any(one.may_have_ended(job, self.grace_s) for one in self.made)


def trials(daemon: Daemon, id_: str, notes: Path, count: int, faults: Faults) -> Findings:
    """Check all trials against their notes.

    Each trial succeeded with its own result, unless faults ended all its attempts. A lost attempt matches a fault and
    states the cause. No attempt follows a successful one. All results of the final attempt are stored once, in order.
    """
    found = Findings()
    listed, attempts = daemon.trials(id_), _by_trial(daemon.attempts(id_))
    stored = _stored(daemon, id_)
    written = {path.name: path.read_text().splitlines() for path in notes.iterdir()}
    if len(listed) != count:
        found.add(f"{len(listed)} trials are listed, not {count}")
    for trial in listed:
        if not _was_cut_off_too_often(trial, attempts[trial["id"]], written):
            _judge_end(found, trial, attempts[trial["id"]])
        _judge_attempts(found, trial, attempts[trial["id"]], written, stored)
        _judge_losses(found, trial, attempts[trial["id"]], written, faults)
    _judge_starts(found, written, {one["jobName"] for group in attempts.values() for one in group})
    found.figures |= _figures(listed, attempts, written)
    return found


def _was_cut_off_too_often(trial: Json, attempts: list[Json], written: dict[str, list[str]]) -> bool:
    """Check that the number of retries after machine faults matches. Each loss is checked separately."""
    cut_off = [one for one in attempts if one["state"] == "LOST" and not _has_ended(written.get(one["jobName"], []))]
    return trial["status"] == "SYS_CANCELED" and len(cut_off) == len(attempts) == PLATFORM_RETRIES + 1


def _judge_end(found: Findings, trial: Json, attempts: list[Json]) -> None:
    number, end, told = trial["sequenceId"], trial["status"], trial["finalResult"]
    if end != "SUCCEEDED":
        states = [(one["state"], one["message"] or one["reason"]) for one in attempts]
        found.add(f"trial {number} is {end} ({trial['reason']}); its attempts: {states}")
    elif told is None or json.loads(told) != number:
        found.add(f"trial {number} has the result {told}")


def _judge_attempts(
    found: Findings, trial: Json, attempts: list[Json], written: dict[str, list[str]], stored: dict[str, list[int]]
) -> None:
    number = trial["sequenceId"]
    finished = [one for one in attempts if _has_ended(written.get(one["jobName"], []))]
    if len(finished) > 1:
        found.add(f"trial {number} was run again though it had finished: {_shown(attempts)}")
    for one in finished:
        reported = _reported(written[one["jobName"]], number)
        if stored[one["jobName"]] != reported:
            found.add(
                f"of trial {number}, attempt {one['number']}, {reported} were reported, and"
                f" {stored[one['jobName']]} are stored: {_shown(attempts)}"
            )
    if trial["status"] == "SUCCEEDED" and not finished:
        found.add(f"trial {number} succeeded, and no attempt of it came to its end: {_shown(attempts)}")


def _judge_losses(
    found: Findings, trial: Json, attempts: list[Json], written: dict[str, list[str]], faults: Faults
) -> None:
    for one in attempts:
        name, lines = f"trial {trial['sequenceId']}, attempt {one['number']},", written.get(one["jobName"], [])
        if one["state"] != "LOST":
            continue
        if not one["message"]:
            found.add(f"{name} was lost without a word")
        if not _has_ended(lines) and not faults.explain(one, lines):
            found.add(
                f"{name} was lost, and no fault can have ended it: {_shown([one])},"
                f" {one['startedMs']}..{one['endedMs']}, {len(lines)} lines written"
            )


def _judge_starts(found: Findings, written: dict[str, list[str]], jobs: set[str]) -> None:
    for job, lines in written.items():
        starts = sum(line.startswith("started ") for line in lines)
        if lines and starts != 1:  # one that is cut off in its first moment has made its file, and no more
            found.add(f"job {job} was started {starts} times")
        if job not in jobs:
            found.add(f"job {job} ran, and no attempt is called so")


def daemon_is_as_before(
    found: Findings, before: Size, daemon: Daemon, machines: list[NamespacedMachine], within_s: float = _GONE_S
) -> None:
    """Wait for the end of broken connections, which are closed when their silence is noticed."""
    deadline = time.monotonic() + within_s
    now = size(daemon, machines)
    while time.monotonic() < deadline and not _is_as_before(before, now):
        time.sleep(0.5)
        now = size(daemon, machines)
    found.figures["daemon"] = f"{before} → {now}"
    if not _is_as_before(before, now):
        found.add(f"the daemon was {before} and is {now}")


def _is_as_before(before: Size, now: Size) -> bool:
    return (
        now.descriptors <= before.descriptors + _FEW
        and now.memory <= before.memory + _GROWTH
        and now.sessions <= before.sessions
    )


def nothing_runs(found: Findings, machines: list[NamespacedMachine], within_s: float = _GONE_S) -> None:
    deadline = time.monotonic() + within_s
    while (left := _left(machines)) and time.monotonic() < deadline:
        time.sleep(0.5)
    for line in left:
        found.add(f"left behind: {line}")


def _left(machines: list[NamespacedMachine]) -> list[str]:
    lines = []
    for machine in machines:
        for process in machine.users_processes():
            with suppress(psutil.Error):
                lines.append(f"{machine.name} {process.pid} {' '.join(process.cmdline())[:120]}")
    return lines


def _is_session(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return process.name().startswith("sshd-session") or "@" in " ".join(process.cmdline()[:1])
    return False


def _by_trial(attempts: list[Json]) -> dict[str, list[Json]]:
    found: dict[str, list[Json]] = defaultdict(list)
    for attempt in attempts:
        found[attempt["trialId"]].append(attempt)
    return found


def _stored(daemon: Daemon, id_: str) -> dict[str, list[int]]:
    """By job: its results in the order of storing. From the database, because the API's list is too short."""
    found: dict[str, list[int]] = defaultdict(list)
    query = (
        "SELECT a.job_name, m.value FROM metrics m"
        " JOIN attempts a ON a.trial_id = m.trial_id AND a.number = m.attempt ORDER BY m.id"
    )
    for job, value in daemon.rows(id_, query):
        found[job].append(int(value))
    return found


def _has_ended(lines: list[str]) -> bool:
    return any(line.startswith("ended ") for line in lines)


def _reported(lines: list[str], number: int) -> list[int]:
    """Number of results of a finished attempt, including the final one."""
    return [int(line.split()[1]) for line in lines if line.startswith("reported ")] + [number]


def _shown(attempts: list[Json]) -> list[tuple[Any, ...]]:
    return [(one["jobName"], one["state"], one["place"], one["message"] or one["reason"]) for one in attempts]


def _figures(listed: list[Json], attempts: dict[str, list[Json]], written: dict[str, list[str]]) -> Json:
    every = [one for group in attempts.values() for one in group]
    return {
        "trials": dict(Counter(trial["status"] for trial in listed)),
        "attempts": dict(Counter(one["state"] for one in every)),
        "tried again": sum(len(group) > 1 for group in attempts.values()),
        "cut off while they ran": sum(not _has_ended(lines) for lines in written.values()),
        "lost": dict(Counter(one["message"] for one in every if one["state"] == "LOST")),
        "trials cut off in every attempt": sum(trial["status"] == "SYS_CANCELED" for trial in listed),
        "interruptions": sum(len(one["interruptions"]) for one in every),
    }
