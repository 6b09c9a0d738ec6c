"""The marks that identify the processes of a job, wherever they are.

Every process of a job has two marks. The variable `NNI_MANAGER_JOB` is lost if a process clears its environment or
overwrites it to change its title. The *tag* is a resource limit without effect on ordinary processes: the soft limit of
real-time CPU time, 2^60 µs (36,000 years) plus a random number. Fork and exec inherit it, and other processes can read
it.
"""

import os
import resource
from contextlib import contextmanager
from typing import Iterator, List, Tuple

from trial_runner import processes, protocol
from trial_runner.keeper.jobs.files import Claim

_RTTIME = "rttime"
#: If the hard limit of real-time CPU time is set: bytes of message queues, slightly less than allowed.
_MSGQUEUE = "msgqueue"
#: If neither works: only the variable.
_VARIABLE = "variable"

# `resource` does not name this one.
_RLIMIT_RTTIME = 15
_RTTIME_BASE = 2**60
_LIMITS = {_RTTIME: _RLIMIT_RTTIME, _MSGQUEUE: resource.RLIMIT_MSGQUEUE}


def new_tag() -> str:
    """A tag that no process has, as storable text."""
    if resource.getrlimit(_RLIMIT_RTTIME)[1] == resource.RLIM_INFINITY:
        return "{}:{}".format(_RTTIME, _RTTIME_BASE + _random_number())
    soft = resource.getrlimit(resource.RLIMIT_MSGQUEUE)[0]
    if soft > 4096:
        # few values, so another keeper may use the same tag: the variable distinguishes them
        return "{}:{}".format(_MSGQUEUE, soft - 1 - _random_number() % (soft // 2))
    return "{}:{}".format(_VARIABLE, _random_number())


def tag_variable(name: str, tag: str) -> str:
    """The value of `NNI_MANAGER_JOB` in this job's processes."""
    return "{}:{}".format(name, tag)


@contextmanager
def tagged(tag: str) -> Iterator[None]:
    """A context in which this process, and every process it starts, has the tag. Raises OSError."""
    limit, value = _limit(tag)
    if limit < 0:
        yield
        return
    before = resource.getrlimit(limit)
    resource.setrlimit(limit, (value, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(limit, before)


def is_marked(pid: int, name: str, tag: str) -> bool:
    """Whether the process has the job's tag or its variable."""
    return _has_tag(pid, tag) or _has_variable(pid, tag_variable(name, tag))


def tag_of(name: str, attempt_directory: str) -> str:
    """The tag of a job's processes, from their variable; empty: it has none. A process also names the attempt's folder:
    a copied experiment has jobs with the same names."""
    start = "{}={}:".format(protocol.ENV_JOB, name).encode()
    folder = "={}".format(attempt_directory).encode()
    for pid in processes.all_pids():
        entries = _variables(pid)
        found = [entry[len(start) :] for entry in entries if entry.startswith(start)]
        if found and any(entry.endswith(folder) or folder + b"/" in entry for entry in entries):
            return found[0].decode(errors="replace")
    return ""


def marked_processes(claim: Claim) -> List[int]:
    """The processes of a claim, without keepers, found by reading each process of the machine (some microseconds
    each)."""
    own = os.getpid()
    marked = [pid for pid in processes.all_pids() if pid != own and is_marked(pid, claim.name, claim.tag)]
    return [pid for pid in marked if not _is_keeper(pid, claim)]


def _random_number() -> int:
    """A random number of 48 bits. Importing `random` would cost megabytes."""
    return int.from_bytes(os.urandom(6), "big")


def _has_tag(pid: int, tag: str) -> bool:
    limit, value = _limit(tag)
    if limit < 0:
        return False
    try:
        return resource.prlimit(pid, limit)[0] == value
    except OSError:
        return False


def _is_keeper(pid: int, claim: Claim) -> bool:
    """A process killed within `tagged` keeps the tag until it is reaped, which some init processes never do."""
    if pid != claim.keeper_pid:
        return False
    stat = processes.read_stat(pid)
    return stat is not None and stat.start_ticks == claim.keeper_start_ticks


def _has_variable(pid: int, value: str) -> bool:
    return "{}={}".format(protocol.ENV_JOB, value).encode() in _variables(pid)


def _variables(pid: int) -> List[bytes]:
    """The environment of a process; empty: it has ended, or belongs to another user."""
    try:
        with open("/proc/{}/environ".format(pid), "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return []


def _limit(tag: str) -> Tuple[int, int]:
    kind, _, value = tag.partition(":")
    return (_LIMITS[kind], int(value)) if kind in _LIMITS else (-1, 0)
