"""Jobs as `squeue`, `sacct` and `scontrol` print them: which fields are asked for, and how lines are read.

Plain text in our own format: JSON differs between releases, and older ones ignore filters with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

#: The name is last; names of our jobs have no separator.
_QUEUE = ("JobID", "State", "exit_code", "RestartCnt", "StartTime", "NodeList", "Reason", "Name")
#: Fields of `squeue --Format`, each with our separator instead of a width.
QUEUE_FORMAT = ",".join(f"{field}:|" for field in _QUEUE[:-1]) + f",{_QUEUE[-1]}:"
_RECORDS = ("JobIDRaw", "JobName", "State", "ExitCode", "Submit", "Start", "End", "NodeList")
RECORD_FORMAT = ",".join(_RECORDS)
#: Codes of states for searches by name: without them held jobs, and those that never started, are missing.
EVERY_STATE = "PD,R,CD,F,CA,TO,NF,PR,OOM,BF,DL,RQ"
_ENDED = frozenset(
    "COMPLETED FAILED CANCELLED TIMEOUT PREEMPTED NODE_FAIL OUT_OF_MEMORY BOOT_FAIL DEADLINE REVOKED".split()
)
_NONE = frozenset({"", "N/A", "NONE", "None", "Unknown", "(null)", "None assigned", "n/a"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A job in the queue or in the accounting."""

    id: str
    name: str
    #: The state's long form; `by`: the user id after CANCELLED, from the accounting.
    state: str
    by: str = ""
    #: Exit code and signal of the batch script, one of them 0; None: unknown.
    exit_code: int | None = None
    signal: int | None = None
    #: Whether the exit code may lack 128, as in the accounting of releases before 25.11.
    is_uncertain: bool = False
    restarts: int = 0
    reason: str = ""
    #: When it started or may start, `2026-11-29T11:00:33`; empty: unknown. In UTC from the queue, in Slurm's
    #: local time from the accounting.
    start: str = ""
    end: str = ""
    nodes: str = ""

    @property
    def was_refused(self) -> bool:
        """Whether `sbatch` refused the job, and left this row."""
        return self.state == "FAILED" and not self.nodes

    @property
    def is_open(self) -> bool:
        """Whether it has not ended, and counts against limits."""
        return self.state not in _ENDED

    @property
    def is_incomplete(self) -> bool:
        """Whether the accounting has not received the exit code yet."""
        return self.state == "FAILED" and not self.exit_code and not self.signal


def queue_rows(text: str) -> dict[str, Row]:
    """The jobs of `squeue` with QUEUE_FORMAT, by id. Lines that are not jobs are left out."""
    rows = {}
    for line in text.splitlines():
        values = line.rstrip().split("|", len(_QUEUE) - 1)
        if len(values) == len(_QUEUE) and values[0].isdigit():
            id, state, status, restarts, start, nodes, reason, name = (_given(value) for value in values)
            exit_code, signal = _decoded(status)
            rows[id] = Row(
                id=id,
                name=name,
                state=state,
                exit_code=exit_code,
                signal=signal,
                restarts=int(restarts) if restarts.isdigit() else 0,
                reason=reason,
                start=start,
                nodes=nodes,
            )
    return rows


def record_rows(text: str, is_exact: bool = False) -> Iterator[Row]:
    """The jobs of `sacct -P` with RECORD_FORMAT, in its order; a job that was requeued has several rows.

    `is_exact`: the release does not take 128 from exit codes."""
    for line in text.splitlines():
        values = line.rstrip("\n").split("|")
        if len(values) != len(_RECORDS) or not values[0].isdigit():
            continue
        id, name, state, status, _, start, end, nodes = (_given(value) for value in values)
        state, _, by = state.partition(" by ")
        code, _, signal = status.partition(":")
        yield Row(
            id=id,
            name=name,
            state=state.split(" ")[0],
            by=by,
            exit_code=int(code) if code.isdigit() else None,
            signal=int(signal) if signal.isdigit() else None,
            is_uncertain=not is_exact,
            start=start,
            end=end,
            nodes=nodes,
        )


def newest_records(text: str, names: Mapping[str, str], is_exact: bool = False) -> dict[str, Row]:
    """The last row of each job, by id; `names`: id → name. Other jobs with these ids are older than the cluster.

    A job has a row for each time it was requeued."""
    found: dict[str, Row] = {}
    for row in record_rows(text, is_exact):
        if names.get(row.id) == row.name:
            restarts = found[row.id].restarts + 1 if row.id in found else 0
            found[row.id] = replace(row, restarts=restarts)
    return found


def settings(text: str) -> dict[str, str]:
    """The settings of `scontrol show config`."""
    lines = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {name.strip(): value.strip() for name, _, value in lines}


_VERSION = re.compile(r"(\d+)\.(\d+)(?:\.\d+)?")


def version_of(text: str) -> tuple[int, int] | None:
    """The release in `slurm-wlm 22.05.8`; None: there is none."""
    found = _VERSION.search(text)
    return (int(found[1]), int(found[2])) if found else None


def _given(value: str) -> str:
    value = value.strip()
    return "" if value in _NONE else value


def _decoded(status: str) -> tuple[int | None, int | None]:
    """Exit code and signal of a wait status, or of both with a colon."""
    code, colon, signal = status.partition(":")
    if not code.isdigit() or (colon and not signal.isdigit()):
        return None, None
    return (int(code), int(signal)) if colon else (int(code) >> 8 & 0xFF, int(code) & 0x7F)
