"""Processes as Linux shows them: start times, exit statuses, children, process descriptors; and spare descriptors.

Every job and every awaited process occupies a descriptor. If those took all, a job's end would be reported without its
last results, and its remaining processes would go unnoticed.
"""

import errno
import fcntl
import os
import select
import signal
import struct
import time
from contextlib import suppress
from functools import lru_cache
from typing import Iterable, List, NamedTuple, Optional, Set

from trial_runner import launch
from trial_runner.wire.descriptors import Descriptor

#: Where the kernel shows processes; some containers lack it.
_PROC = "/proc"
_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
_SYS_PIDFD_OPEN = 434  # the same on every architecture
#: ``_IOWR(0xFF, 11, struct pidfd_info)`` with the structure's first size, 64 bytes.
_PIDFD_GET_INFO = (3 << 30) | (64 << 16) | (0xFF << 8) | 11
_PIDFD_INFO_EXIT = 1 << 3


class Exit(NamedTuple):
    """How a process ended: one of the two is set."""

    exit_code: Optional[int]
    signal: Optional[int]


class Stat(NamedTuple):
    """The fields of ``/proc/<pid>/stat`` that are used here."""

    state: str
    parent: int
    session: int
    #: Clock ticks since boot; with pid and boot id, it identifies a process uniquely.
    start_ticks: int
    #: As `wait` returns it; valid in state Z.
    exit_status: int


def become_subreaper() -> None:
    """Makes orphans below this process its children. Raises OSError."""
    launch.libc_call("prctl", _PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with(parent: int) -> None:
    """Makes the kernel kill this process when its parent ends; at once, if the parent has ended. Raises OSError."""
    launch.libc_call("prctl", _PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def forbid_inspection() -> None:
    """Hides our memory from other processes of this user. Best effort: not from root, and not on all kernels."""
    with suppress(OSError):
        launch.libc_call("prctl", _PR_SET_DUMPABLE, 0, 0, 0, 0)


@lru_cache(maxsize=None)
def boot_id() -> str:
    """The boot id, which changes with every boot; empty: unknown."""
    try:
        with open(_PROC + "/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def read_stat(pid: int) -> Optional[Stat]:
    """The state of a process from the kernel; None: it does not exist."""
    try:
        with Descriptor(os.open("{}/{}/stat".format(_PROC, pid), os.O_RDONLY)) as descriptor:
            data = os.read(descriptor, 4096)  # one line, a few hundred bytes
    except OSError:  # it does not exist, or ended meanwhile
        return None
    # the second field, the command's name, may contain spaces and parentheses
    fields = data[data.rindex(b")") + 2 :].split()
    return Stat(fields[0].decode(), int(fields[1]), int(fields[3]), int(fields[19]), int(fields[49]))


def started_ms(start_ticks: int) -> int:
    """Milliseconds since the epoch, to the tick."""
    return time.time_ns() // 1000000 - age_ms(start_ticks)


def age_ms(start_ticks: int) -> int:
    """Milliseconds since a process started, to the tick, by the monotonic clock."""
    boot_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    return max(0, int(1000 * (boot_s - start_ticks / os.sysconf("SC_CLK_TCK"))))


def open_pidfd(pid: int) -> int:
    """A descriptor that becomes readable when the process, with all threads, has ended. Raises OSError."""
    native = getattr(os, "pidfd_open", None)
    if native is not None:
        return int(native(pid))
    return launch.libc_call("syscall", _SYS_PIDFD_OPEN, pid, 0)  # the kernel sets close-on-exec itself


def has_ended(pidfd: int) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))


def has_ended_children() -> bool:
    """Whether there is anything to reap; one call for any number of children."""
    try:
        return os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return False


def peek_exit(pid: int) -> Optional[Exit]:
    """How a child of ours ended, without reaping it, so its pid stays reserved. None: not known yet."""
    status = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if status is None:
        return None
    if status.si_code == os.CLD_EXITED:
        return Exit(status.si_status, None)
    return Exit(None, status.si_status)


def orphan_exit(pid: int, start_ticks: int, pidfd: int) -> Optional[Exit]:
    """How a process that is not our child ended; None: unknown.

    Until it is reaped, its stat line shows it. Afterwards Linux 6.15 and newer report it for a descriptor that was
    opened before; older kernels do not.
    """
    stat = read_stat(pid)
    if stat is not None and stat.start_ticks == start_ticks:
        return exit_of(stat.exit_status)
    information = bytearray(64)
    struct.pack_into("<Q", information, 0, _PIDFD_INFO_EXIT)
    try:
        fcntl.ioctl(pidfd, _PIDFD_GET_INFO, information, True)
    except OSError:
        return None
    if not struct.unpack_from("<Q", information, 0)[0] & _PIDFD_INFO_EXIT:
        return None
    return exit_of(struct.unpack_from("<i", information, 60)[0])


def children(pid: int) -> List[int]:
    """Complete for this process itself; for others, some may be missed while they come and go."""
    folder = "{}/{}/task".format(_PROC, pid)
    try:
        listed = [_read("{}/{}/children".format(folder, thread)) for thread in os.listdir(folder)]
    except FileNotFoundError:
        # the process is gone, or the kernel was built without these lists
        return _children_by_parent(pid) if os.path.isdir(folder) else []
    except OSError:
        return []
    return [int(child) for text in listed for child in text.split()]


def own_children() -> List[int]:
    """The children of this process, which has one thread. Complete."""
    try:
        return [int(child) for child in _read(_PROC + "/thread-self/children").split()]
    except FileNotFoundError:  # the kernel was built without these lists
        return _children_by_parent(os.getpid())


def with_descendants(roots: Iterable[int]) -> List[int]:
    """The roots and everything below them, parents first."""
    found = list(dict.fromkeys(roots))
    seen: Set[int] = set(found)
    for pid in found:
        for child in children(pid):
            if child not in seen:
                seen.add(child)
                found.append(child)
    return found


def all_pids() -> List[int]:
    return [int(name) for name in os.listdir(_PROC) if name.isdigit()]


def are_shown() -> bool:
    """Whether processes can be found at all."""
    return os.path.exists(_PROC + "/self/stat")


def has_children() -> bool:
    """Includes ended processes that are not reaped yet."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def has_group(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except OSError as error:
        return not isinstance(error, ProcessLookupError)
    return True


def signal_unseen(group: int, number: int) -> None:
    """Signals a process group without `/proc`; as process 1 of a container, all other processes."""
    with suppress(ProcessLookupError, PermissionError):
        if os.getpid() == 1:
            os.kill(-1, number)
        else:
            os.killpg(group, number)


def send_signal(pid: int, number: int) -> None:
    """Ignored if the process is gone or belongs to another user."""
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def catches(pid: int, number: int) -> bool:
    """Whether a process has a handler for the signal; False if that is unknown."""
    try:
        status = _read("{}/{}/status".format(_PROC, pid))
    except OSError:
        return False
    _, _, rest = status.partition(b"\nSigCgt:")
    return bool(int(rest.split(None, 1)[0], 16) >> (number - 1) & 1) if rest else False


def reap(pid: int) -> bool:
    """Whether the child had ended and is reaped now; also true if it is not our child any more."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def exit_of(status: int) -> Exit:
    """The exit of a status of `wait`."""
    if os.WIFSIGNALED(status):
        return Exit(None, os.WTERMSIG(status))
    return Exit(os.WEXITSTATUS(status), None)


def _children_by_parent(parent: int) -> List[int]:
    stats = ((pid, read_stat(pid)) for pid in all_pids())
    return [pid for pid, stat in stats if stat is not None and stat.parent == parent]


def _read(path: str) -> bytes:
    with Descriptor(os.open(path, os.O_RDONLY)) as descriptor:
        # the kernel generates these texts during the read: one read is one moment, up to this size
        data = chunk = os.read(descriptor, 65536)
        while chunk:
            chunk = os.read(descriptor, 65536)
            data += chunk
        return data


#: More than are ever open temporarily.
RESERVED = 16


def kept_free(descriptor: int) -> int:
    """The descriptor. Raises OSError (EMFILE), after closing it, if it is one of the spare ones."""
    import resource  # runners have this module, too, but do not need it

    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY or descriptor < limit - RESERVED:
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EMFILE, "Too many open files")


def require_one(example: int) -> None:
    """Raises OSError (EMFILE) if only spare ones are left. `example`: any open descriptor."""
    os.close(kept_free(os.dup(example)))
