"""The machine of each job, written before its submission, so that a job with an interrupted submission is looked for
there.

A file in the service's folder with a line for each job; a later line wins. The state of jobs is the keepers'.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

_FILE = "machines.tsv"
#: In place of a machine: the job is unwanted; with `_GONE`: and its keeper has forgotten it.
_UNWANTED = "-"
_GONE = "--"


class JobLocations:
    """The file of the machines that jobs were started on. Blocks for moments; it is small and on this machine."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / _FILE
        self._machines: dict[str, str] = {}
        self._unwanted: set[str] = set()
        self._gone: set[str] = set()

    def load(self) -> None:
        """Reads the file. Raises OSError."""
        self._machines, self._unwanted, self._gone = {}, set(), set()
        try:
            lines = self._path.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return
        for line in lines:
            name, _, machine = line.partition("\t")
            self._take(name, machine)

    def machine(self, job_name: str) -> str | None:
        """The key of the machine of a job; None: it was never started, as far as this file knows."""
        return self._machines.get(job_name)

    def machines(self, first_job: str, before: int | None = None) -> list[str]:
        """The keys of the machines of a trial's attempts, or of those before one of this number, of the last one first;
        each once. `first_job`: the name of its first attempt's job."""
        numbers = {name: _number(name, first_job) for name in self._machines if name.startswith(first_job)}
        earlier = [(number, name) for name, number in numbers.items() if 0 < number < (before or number + 1)]
        return list(dict.fromkeys(self._machines[name] for _, name in sorted(earlier, reverse=True)))

    def has_jobs_on(self, machine: str) -> bool:
        """Whether a machine has started jobs that its keeper has not forgotten."""
        return any(at == machine and name not in self._gone for name, at in self._machines.items())

    def was_used(self, machine: str) -> bool:
        """Whether a job was ever started on a machine; its files stay there until the experiment is deleted."""
        return machine in self._machines.values()

    def is_wanted(self, job_name: str) -> bool:
        return job_name not in self._unwanted

    def put(self, job_name: str, machine: str) -> None:
        """Notes that a job is about to be started on a machine. Raises OSError."""
        if self._machines.get(job_name) != machine or job_name in self._unwanted:
            self._write([job_name], machine)

    def know(self, job_name: str, machine: str) -> None:
        """Notes a job's machine as its handle names it, unless the file has one."""
        self._machines.setdefault(job_name, machine)

    def give_up(self, job_name: str) -> None:
        """Notes that a job is to end, wherever it is found. Raises OSError."""
        if job_name not in self._unwanted:
            self._write([job_name], _UNWANTED)

    def note_gone(self, job_names: Iterable[str]) -> None:
        """Notes that the keeper of these jobs has forgotten them, or is gone. Raises OSError."""
        if names := [name for name in job_names if name not in self._gone]:
            self._write(names, _GONE)

    def _write(self, job_names: Iterable[str], machine: str) -> None:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(file, "".join(f"{name}\t{machine}\n" for name in job_names).encode())
        finally:
            os.close(file)
        for name in job_names:
            self._take(name, machine)

    def _take(self, job_name: str, machine: str) -> None:
        if machine in (_UNWANTED, _GONE):
            self._unwanted.add(job_name)
            if machine == _GONE:
                self._gone.add(job_name)
        elif machine:
            self._machines[job_name] = machine
            self._unwanted.discard(job_name)
            self._gone.discard(job_name)


def _number(job_name: str, first_job: str) -> int:
    """The number of an attempt by its job's name; 0: it is of another trial."""
    suffix = job_name.removeprefix(first_job)
    return 1 if not suffix else int(suffix[1:]) if suffix[0] == "-" and suffix[1:].isdigit() else 0
