"""What Slurm does to a trial, and what the manager shows: cases, and the steps in which each is seen."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.acceptance.slurm_trials import SlurmExperiment
from tests.fakes.slurm.cluster import SlurmCluster
from tests.fakes.slurm.memory import CGROUP, POLL
from tests.live_daemon import Daemon

#: Reports a final result after `{s}` seconds.
_GOOD = """sleep {s}; echo '{{"type": "final", "value": 1}}' >> "$NNI_OUTBOX\""""
_GREEDY = "python3 -c 'x = bytearray(700 * 2**20); import time; time.sleep(60)'"
_KILLED = "a process of its job was killed: the job exceeded its memory. Raise trialMemorySize."
#: Status of a trial whose experiment was refused at creation.
REFUSED = "REFUSED"
#: Maximum width of a column.
_WIDTH = 110
_MOMENT, _LONG = _GOOD.format(s=1), _GOOD.format(s=12)


@dataclass(frozen=True, slots=True)
class Step:
    """What a trial shows. `words`: in its sentence. `then`: command that follows; `{id}` and `{node}`: of its job."""

    status: str
    reason: str = ""
    words: str = ""
    attempts: int = 1
    then: str = ""


@dataclass(frozen=True, slots=True)
class Case:
    """A trial. `command`: what it runs."""

    name: str
    command: str
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """Trials of one experiment. `section`: of its training service."""

    cases: tuple[Case, ...]
    section: Mapping[str, Any] = field(default_factory=dict)


def _case(name: str, command: str, *steps: Step) -> Case:
    return Case(name, command, steps)


def _refused(name: str, words: str, **section: Any) -> Group:
    return Group((_case(name, _MOMENT, Step(REFUSED, "", words, 0)),), section)


_DONE = Step("SUCCEEDED")
_URGENT = "sbatch -p urgent -w {node} --exclusive -o /dev/null --wrap true"
_MEMORY = Step("FAILED", "OUT_OF_MEMORY", "exceeded its memory. Raise trialMemorySize.")

#: How the cluster limits memory → trials that exceed it. Reading it at intervals, Slurm ends jobs as a whole. With a
#: cgroup, the kernel kills a process, and the job goes on.
OVER_MEMORY: Mapping[str, Group] = {
    POLL: Group(
        (
            _case("over memory, in a child (poll)", f"{_GREEDY}; true", _MEMORY),
            _case("over memory, the command (poll)", f"exec {_GREEDY}", _MEMORY),
        ),
        {"trialMemorySize": "64MB"},
    ),
    CGROUP: Group(
        (
            _case("over memory, the command (cgroup)", f"exec {_GREEDY}", _MEMORY),
            _case("over memory, the command's shell (cgroup)", f"{_GREEDY}", _MEMORY),
            _case(
                "over memory, in a child, exit 1 (cgroup)",
                f"{_GREEDY} || exit 1",
                Step("FAILED", "USER_CODE", f"exit code 1; {_KILLED}"),
            ),
            _case("over memory, in a child, exit 0 (cgroup)", f"{_GREEDY}; {_MOMENT}", Step("SUCCEEDED", "", _KILLED)),
            _case("within memory (cgroup)", _GOOD.format(s=45), _DONE),
        ),
        {"trialMemorySize": "64MB"},
    ),
}

#: Run first: jobs that preempt need whole nodes, and doctor only warns of what drained nodes might do.
ON_IDLE_NODES = (
    Group(
        (
            _case(
                "preempted, cancelled",
                _LONG,
                Step("RUNNING", "", "node", then=_URGENT),
                Step("SUCCEEDED", "", "preempted the job", 2),
            ),
        ),
        {"options": ["--exclusive"]},
    ),
    Group(
        (
            _case(
                "preempted, requeued",
                _LONG,
                Step("RUNNING", "", "node", then="scontrol update JobId={id} Requeue=1; " + _URGENT),
                Step("SUCCEEDED", "", "requeued on Slurm", 2),
            ),
        ),
        {"options": ["--exclusive"], "partition": "again"},
    ),
    _refused("memory 99999 MB", "would not start a job with these options", trialMemorySize="99999MB"),
    _refused("nodeNumber 9", "would not start a job with these options", nodeNumber=9),
    _refused("unknown partition", "Invalid partition name", partition="nope"),
    _refused("unknown QOS", "Invalid qos", qos="nope"),
    _refused("partition private", "the account lab may not use the partition private", partition="private"),
    _refused(
        "above a partition's time", "timeLimit: 1:00:00 is above the limit", partition="short", timeLimit="1:00:00"
    ),
)

OTHERS = (
    Group(
        (
            _case("exit 0", _MOMENT, _DONE),
            _case("exit 7", "exit 7", Step("FAILED", "USER_CODE", "exit code 7")),
            _case("exit 127", "no-such-program", Step("FAILED", "USER_CODE", "exit code 127")),
            _case("exit 143", "exit 143", Step("FAILED", "USER_CODE", "exit code 143")),
            _case(
                "scontrol requeue",
                _LONG,
                Step("RUNNING", "", "node", then="scontrol update JobId={id} Requeue=1; scontrol requeue {id}"),
                Step("SUCCEEDED", "", "requeued on Slurm", 2),
            ),
            _case(
                "scontrol suspend",
                _LONG,
                Step("RUNNING", "", "node", then="scontrol suspend {id}"),
                Step("RUNNING", "", "suspended on Slurm", then="scontrol resume {id}"),
                _DONE,
            ),
            _case(
                "scancel by a user",
                "sleep 300",
                Step("RUNNING", "", "node", then="scancel {id}"),
                Step("SYS_CANCELED", "CANCELLED_THERE", "cancelled on Slurm by root"),
            ),
        ),
    ),
    Group(
        (
            _case(
                "scontrol hold",
                _MOMENT,
                Step("WAITING", "HELD", "JobHeldUser", then="scontrol release {id}"),
                _DONE,
            ),
        ),
        {"options": ["--hold"]},
    ),
    Group(
        (
            _case(
                "drained node",
                _MOMENT,
                Step("WAITING", "UNSCHEDULABLE", "down, drained", then="scontrol update NodeName=n2 State=RESUME"),
                _DONE,
            ),
        ),
        {"options": ["--nodelist=n2"]},
    ),
    Group((_case("over time", "sleep 300", Step("FAILED", "TIMEOUT", "timeLimit")),), {"partition": "short"}),
    OVER_MEMORY[POLL],
    Group(
        (
            _case("QOS tight, its one job", _LONG, Step("RUNNING", "", "node"), _DONE),
            _case("QOS tight, second job", _MOMENT, Step("WAITING", "QUOTA", "QOSMaxJobsPerUserLimit"), _DONE),
            _case("QOS tight, third job", _MOMENT, Step("WAITING", "QUOTA", "takes no further job", 0), _DONE),
        ),
        {"qos": "tight"},
    ),
    Group(
        (_case("QOS small", _MOMENT, Step("HOLD", "NEVER_STARTS", "QOSMaxWallDurationPerJobLimit")),),
        {"qos": "small", "timeLimit": "20"},
    ),
    Group(
        (_case("account poor", _MOMENT, Step("HOLD", "NEVER_STARTS", "AssocGrpCPUMinutesLimit")),),
        {"account": "poor", "timeLimit": "10"},
    ),
    Group(
        (_case("partition closed", _MOMENT, Step("HOLD", "NEVER_STARTS", "PartitionDown")),), {"partition": "closed"}
    ),
)


def as_text(rows: Sequence[tuple[str, ...]]) -> str:
    """The table, with aligned columns."""
    heads = ("case", "status", "reason", "sentence", "attempts")
    shown = [heads, *(tuple(cell[:_WIDTH] for cell in row) for row in rows)]
    widths = [max(len(row[column]) for row in shown) for column in range(len(heads))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in shown]
    return "\n".join(line.rstrip() for line in lines)


class GroupRun:
    """An experiment of a group, which goes through the steps of its cases. `fault`: why it was refused."""

    def __init__(self, group: Group, one: SlurmExperiment) -> None:
        self.group = group
        self.one = one
        self.seen: dict[str, list[tuple[str, ...]]] = {case.name: [] for case in group.cases}
        self.latest: dict[str, tuple[str, ...]] = {}
        self.fault = ""

    def start(self) -> None:
        lines = [f"{number}) {case.command} ;;" for number, case in enumerate(self.group.cases)]
        script = "\n".join(['case "$NNI_TRIAL_SEQ_ID" in', *lines, "esac\n"])
        (self.one.code / "case.sh").write_text(script)
        number = len(self.group.cases)
        try:
            self.one.create(trials=number, at_once=number, command="exec bash case.sh", **self.group.section)
        except AssertionError as error:
            self.fault = str(json.loads(str(error).partition("\n")[0])["error"])

    def run(self, within_s: float) -> None:
        """Returns when every case went through its steps, or the time is over."""
        self.start()
        if self.fault:
            for case in self.group.cases:
                self._note(case, (REFUSED, "", self.fault, "0"))
        else:
            with suppress(AssertionError):  # the table shows what is missing
                self.one.daemon.wait_for(self.one.id, self._advance, within_s)

    def _advance(self, state: Mapping[str, Any]) -> bool:
        trials = self.one.daemon.trials(self.one.id)
        for case, trial in zip(self.group.cases, trials, strict=False):
            if self._is_left(case):
                self._look(case, self.one.daemon.trial(self.one.id, trial["id"]), state)
        return not self.is_left

    @property
    def is_left(self) -> bool:
        return any(map(self._is_left, self.group.cases))

    def _is_left(self, case: Case) -> bool:
        return len(self.seen[case.name]) < len(case.steps)

    def _look(self, case: Case, trial: Mapping[str, Any], state: Mapping[str, Any]) -> None:
        attempts = trial["attempts"]
        status, reason, sentence = trial["status"], trial["reason"] or "", trial["message"] or ""
        if state["hold"]:
            status, reason, sentence = "HOLD", state["hold"]["code"], state["hold"]["sentence"]
        elif trial["wait"]:
            reason, sentence = trial["wait"]["code"], trial["wait"]["sentence"]
        elif status == "RUNNING" and attempts:
            sentence = attempts[-1]["place"] or ""
        elif len(attempts) > 1 and not sentence:
            sentence = attempts[0]["message"] or ""
        self._note(case, (status, reason, sentence, str(len(attempts))))

    def _note(self, case: Case, view: tuple[str, str, str, str]) -> None:
        """Keeps a view that shows the next step, and takes the action after it."""
        self.latest[case.name] = view
        step = case.steps[len(self.seen[case.name])]
        status, reason, sentence, attempts = view
        fits = (status, reason, attempts) == (step.status, step.reason, str(step.attempts)) and step.words in sentence
        if fits:
            self.seen[case.name].append(view)
            if step.then:
                self._act(case, step)

    def _act(self, case: Case, step: Step) -> None:
        trial = self.one.daemon.trials(self.one.id)[self.group.cases.index(case)]["id"]
        ((id, node),) = [row[:2] for row in self.one.jobs("%i", "%N", "%j") if f"_trial_{trial}" in row[2]]
        self.one.cluster.call("sh", "-c", step.then.format(id=id, node=node))

    def rows(self) -> list[tuple[str, ...]]:
        """The views of each case; after a view that is missing, the last one that was there instead."""
        found = []
        for case in self.group.cases:
            views = list(self.seen[case.name])
            if self._is_left(case):
                views.append(self.latest.get(case.name, ("never seen", "", "", "0")))
            found += [(case.name, *view) for view in views]
        return found


def run_all(
    groups: Sequence[Group], daemon: Daemon, cluster: SlurmCluster, folder: Path, within_s: float
) -> list[GroupRun]:
    """Runs all groups at a time; `within_s` for each."""
    runs = [
        GroupRun(group, SlurmExperiment(daemon, cluster, folder / str(number))) for number, group in enumerate(groups)
    ]
    with ThreadPoolExecutor(len(runs)) as pool:
        for future in [pool.submit(run.run, within_s) for run in runs]:
            future.result()
    return runs
