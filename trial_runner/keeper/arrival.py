"""The first program that a manager runs on a machine: describes it, installs `trial_runner`, attaches to the keeper.

Its text is sent to the machine and run by its own Python with `SETTINGS` set, so it imports nothing of ours until that
has arrived. The conversation, on standard input and output: a line of JSON (`describe`); the archive, if `has` is
false; a line of JSON, ``{"ready": true}`` or ``{"failed": sentence}``; then the keeper's own frames. `SETTINGS`:
`archive` (hash of its bytes), `tree` (`tree_hash` of its content), `size` (bytes), `folder` (of this manager and
machine, below the home folder), `look`: leave nothing and attach nothing, `gpus`: seconds for a *reading* of them, the
second line; 0: none, and `manager`: the manager's place, an object of `host`, `machine` (a hash; empty: unknown),
`directory`, `inode` (of a file that moves along), `claimed_ms` (time when a user declared the move; 0: never) and `run`
(random id of its daemon's run; empty: unknown); None: nothing is attached.

A folder belongs to one manager and stores the place of the last one. A manager with another place is a copy: it gets
`held` and is rejected, until a user declares, later than for the other, that it has moved. The clone of a whole machine
has the same place, but another run. The run of an ended daemon never returns; so if an old run appears after a newer
one, two daemons are at work, and the later one is rejected from then on.
"""

import errno
import hashlib
import json
import os
import re
import signal
import stat
import sys
import time

# imports that only some steps need are inside them: every connection waits for this program, mostly for imports

SETTINGS = globals().get("SETTINGS", {})  # the manager prepends the assignment to this text
_ROOT = ".nni-manager"
#: Seconds that programs of other versions stay, as keepers with jobs may run from them.
_OLD_S = 30 * 24 * 3600
_SYS_PIDFD_OPEN = 434  # the same on every architecture
#: File in the folder, and its fields.
_MANAGER = "manager.json"
_PLACE = {"host", "machine", "directory", "inode", "claimed_ms"}
#: Further fields: runs before the last one, and runs that appeared while another was active. Maximum number of each.
_EARLIER, _REFUSED = "earlier", "refused"
_MOST_RUNS = 16


def main():
    # type: () -> int
    root = os.path.join(os.path.expanduser("~"), _ROOT)
    program = os.path.join(root, "bin", SETTINGS["archive"])
    folder = os.path.join(root, SETTINGS["folder"])
    has = is_program(program)
    greeting = describe(root, folder, has)
    say(greeting)
    if SETTINGS["look"]:
        if SETTINGS["gpus"]:
            say(gpus(program, has))
        return 0
    if greeting["held"]:
        return 1
    try:
        prepare(folder, None if has else receive(SETTINGS["size"]), program)
        note_manager(folder)
    except OSError as error:
        say({"failed": "{} cannot be written ({})".format(error.filename or root, error.strerror)})
        return 1
    sys.path.insert(0, program)
    try:
        from trial_runner.keeper.__main__ import default_socket_path
        from trial_runner.keeper.__main__ import main as keeper

        default_socket_path(os.path.join(folder, "keeper"))
    except OSError as error:
        fix = "remove it there, or give its user a home folder with a shorter path"
        say({"failed": "{}: {}".format(error.filename, error.strerror), "fix": fix})
        return 1
    except ImportError as error:
        version = ".".join(map(str, sys.version_info[:3]))
        say({"failed": "its Python {} cannot run the keeper ({})".format(version, error)})
        return 1
    say({"ready": True})
    return keeper(["attach", "--directory", os.path.join(folder, "keeper")])


def prepare(folder, archive, program):
    # type: (str, bytes | None, str) -> None
    """Creates our folders, private from the top with any umask, and installs the program. Raises OSError."""
    # before its folders become private
    is_changed = archive is not None and os.path.lexists(program) and not is_program(program)
    kept = os.umask(0o077)
    try:
        home = os.path.expanduser("~")
        for place in (folder, os.path.dirname(program)):
            os.makedirs(place, mode=0o700, exist_ok=True)
            while place != home and len(place) > len(home):
                make_private(place)
                place = os.path.dirname(place)
        if archive is not None:
            install(archive, program, is_changed)
        remove_old(os.path.dirname(program), SETTINGS["archive"])
    finally:
        os.umask(kept)


def make_private(path):
    # type: (str) -> None
    """Corrects the mode: earlier versions left it to the umask."""
    status = os.stat(path)
    if status.st_uid not in ours():
        raise OSError(errno.EPERM, "it belongs to another user", path)
    if status.st_mode & 0o077:
        os.chmod(path, 0o700)


def ours():
    # type: () -> set[int]
    """Users that are trusted with our files: a server of home folders may show root's as another user's."""
    return {os.geteuid(), os.stat(os.path.expanduser("~")).st_uid}


def is_program(program):
    # type: (str) -> bool
    """Whether the program is complete, and no other user could have changed it: bytecode has no hash."""
    paths = [program]
    try:
        for here, folders, files in os.walk(program):
            paths += [os.path.join(here, name) for name in folders + files]
        found = [os.lstat(path) for path in paths]
        open_bits = 0 if is_private(os.path.dirname(os.path.dirname(program))) else 0o022
        if any(stat.S_ISLNK(one.st_mode) or one.st_uid not in ours() or one.st_mode & open_bits for one in found):
            return False
        return tree_hash(program, paths) == str(SETTINGS["tree"])
    except OSError:
        return False


def is_private(path):
    # type: (str) -> bool
    """Whether no other user can have changed the content, whatever its mode. Raises OSError."""
    status = os.stat(path)
    return status.st_uid in ours() and not status.st_mode & 0o077


def tree_hash(program, paths):
    # type: (str, list[str]) -> str
    """The SHA-256 of names and contents, without bytecode."""
    whole = hashlib.sha256()
    names = [os.path.relpath(path, program) for path in paths if os.path.isfile(path)]
    for name in sorted(name for name in names if "__pycache__" not in name.split(os.sep)):
        with open(os.path.join(program, name), "rb") as file:
            whole.update("{} {}\n".format(hashlib.sha256(file.read()).hexdigest(), name).encode())
    return whole.hexdigest()


def describe(root, folder, has):
    # type: (str, str, bool) -> dict[str, object]
    """A description of the machine: the fields that the manager uses, and those for display."""
    there = existing(root)
    disk, system = os.statvfs(there), os.uname()
    return {
        "has": has,
        "python": list(sys.version_info[:3]),
        "system": system.sysname,
        "kernel": system.release,
        "has_pidfds": has_pidfds(),
        "host": system.nodename,
        "folder": folder,
        "program": os.path.join(root, "bin", SETTINGS["archive"]),
        "interpreter": sys.executable,
        "environment": environment(),
        "processors": len(os.sched_getaffinity(0)),
        "now_ms": int(time.time() * 1000),
        "disk_free_bytes": disk.f_frsize * disk.f_bavail,
        "free_inodes": disk.f_favail if disk.f_files > 0 else None,
        "may_write": os.access(there, os.W_OK | os.X_OK),
        "home": os.path.dirname(root),
        "keeper": keeper_version(os.path.join(folder, "keeper")),
        "held": holder(folder),
    }


def has_pidfds():
    # type: () -> bool
    """Whether the kernel has process descriptors (Linux 5.3), with which a keeper observes the end of jobs."""
    try:
        native = getattr(os, "pidfd_open", None)
        os.close(native(os.getpid()) if native is not None else pidfd_by_number())
    except (OSError, ImportError) as error:
        return getattr(error, "errno", None) != errno.ENOSYS
    return True


def pidfd_by_number():
    # type: () -> int
    """Calls `pidfd_open`, which Python has from 3.9 on. Raises OSError."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.syscall(_SYS_PIDFD_OPEN, os.getpid(), 0)
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), "pidfd_open")
    return int(descriptor)


def environment():
    # type: () -> dict[str, str]
    """The variables that are valid text; others cannot be sent and are left out."""
    return {name: value for name, value in os.environ.items() if not re.search("[\ud800-\udfff]", name + value)}


def holder(folder):
    # type: (str) -> str
    """The place of the manager that owns the folder, as text; empty: it is this one, or there is none yet."""
    ours, known = SETTINGS["manager"], manager_of(folder)
    if ours is None or known is None or ours["claimed_ms"] > known["claimed_ms"]:
        return ""
    there = "{} on {}".format(known["directory"], known["host"])
    if not is_same_place(ours, known):
        return there
    if ours.get("run") and ours["run"] in runs(known, _REFUSED):
        return there + ", which is active at the same time (one of the two machines is a clone of the other)"
    return ""


def is_same_place(one, other):
    # type: (dict[str, object], dict[str, object]) -> bool
    """Whether both are the same data directory, possibly moved on its machine or restored from a backup."""
    is_there = one["machine"] != "" and one["directory"] == other["directory"]
    return one["machine"] == other["machine"] and (is_there or one["inode"] == other["inode"])


def manager_of(folder):
    # type: (str) -> dict[str, object] | None
    """The place of the folder's latest manager; None: there was none, or it is unknown."""
    try:
        with open(os.path.join(folder, _MANAGER), encoding="utf-8") as file:
            known = json.load(file)
        return known if set(known) >= _PLACE and isinstance(known["claimed_ms"], int) else None
    except (OSError, ValueError, TypeError):
        return None


def note_manager(folder):
    # type: (str) -> None
    """Raises OSError."""
    ours, known = SETTINGS["manager"], manager_of(folder)
    if ours is None:
        return
    is_claimed = known is not None and ours["claimed_ms"] > known["claimed_ms"]
    noted = dict(ours, **runs_after(ours.get("run"), known or {}, is_claimed))
    if noted == known:
        return
    path = os.path.join(folder, _MANAGER)
    draft = "{}.{}".format(path, os.getpid())
    with open(draft, "w", encoding="utf-8") as file:
        json.dump(noted, file)
    os.replace(draft, path)


def runs_after(run, known, is_claimed):
    # type: (object, dict[str, object], bool) -> dict[str, list[object]]
    """The other runs to store with an accepted manager. `known`: stored ones; empty: none; `is_claimed`: a user has
    declared that the folder belongs to this manager."""
    earlier, refused, last = runs(known, _EARLIER), runs(known, _REFUSED), known.get("run")
    if run and last and run != last:
        (refused if is_claimed or run in earlier else earlier).append(last)
    return {
        _EARLIER: [one for one in earlier if one != run][-_MOST_RUNS:],
        _REFUSED: [one for one in refused if one != run][-_MOST_RUNS:],
    }


def runs(known, name):
    # type: (dict[str, object], str) -> list[object]
    found = known.get(name)
    return list(found) if isinstance(found, list) else []


def keeper_version(directory):
    # type: (str) -> str
    """The version of the keeper that serves the directory; empty: none, or unknown. It is read from files, as a keeper
    serves one connection at a time."""
    try:
        with open(os.path.join(directory, "keeper.lock"), encoding="utf-8") as file:
            pid = int(file.readline())
        with open("/proc/{}/cmdline".format(pid), encoding="utf-8") as file:
            words = file.read().split("\0")
        if directory not in words:
            return ""
        program = words[words.index("serve") - 1]
        with open(os.path.join(program, "trial_runner", "protocol.py"), encoding="utf-8") as file:
            found = re.search('^VERSION = "(.*)"$', file.read(), re.MULTILINE)
    except (OSError, ValueError):
        return ""
    return found.group(1) if found else ""


def gpus(program, has):
    # type: (str, bool) -> dict[str, object]
    """The driver's reading of the GPUs; the program for it is removed before it calls the driver."""
    import shutil
    import tempfile

    draft = tempfile.mkdtemp()
    try:
        if not has:
            program = os.path.join(draft, "runner.pyz")
            with open(program, "wb") as file:
                file.write(receive(SETTINGS["size"]))
        sys.path.insert(0, program)
        from trial_runner.gpu_probe import Probe
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    signal.signal(signal.SIGALRM, lose_patience)
    signal.alarm(SETTINGS["gpus"])
    try:
        reading = Probe().read()
    except DriverHangs as error:
        reading = {"cards": [], "error": str(error)}
    for card in reading["cards"]:
        for process in card["processes"]:
            process["job"] = None  # no keeper can be asked
    return reading


class DriverHangs(Exception):
    """The driver hangs. Not an OSError, as those are the driver's own."""


def lose_patience(number, frame):
    # type: (int, object) -> None
    raise DriverHangs("the driver has not answered for {} s".format(SETTINGS["gpus"]))


def existing(path):
    # type: (str) -> str
    """The nearest existing folder above."""
    while not os.path.isdir(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    return path


def receive(size):
    # type: (int) -> bytes
    """Bytes from standard input, which contains nothing else before the manager is told that the keeper is ready."""
    pieces = []
    while size:
        piece = os.read(0, min(size, 256 * 1024))
        if not piece:
            raise OSError(errno.EPIPE, "the connection ended", "the program")
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def install(archive, program, is_changed):
    # type: (bytes, str, bool) -> None
    """Installs the program atomically, also if several machines that share this home folder do so."""
    import io
    import shutil
    import zipfile

    draft = "{}.{}-{}".format(program, os.uname().nodename[:32], os.getpid())
    os.makedirs(draft, mode=0o700)
    try:
        zipfile.ZipFile(io.BytesIO(archive)).extractall(draft)
        if is_changed:
            os.rename(program, draft + ".changed")
            shutil.rmtree(draft + ".changed", ignore_errors=True)
        os.rename(draft, program)
    except OSError:
        shutil.rmtree(draft, ignore_errors=True)
        if not is_program(program):  # otherwise another process was faster
            raise


def remove_old(folder, current):
    # type: (str, str) -> None
    """Programs that were not used for long."""
    os.utime(os.path.join(folder, current), None)
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        try:
            if name != current and time.time() - os.stat(path).st_mtime > _OLD_S:
                import shutil

                shutil.rmtree(path, ignore_errors=True)
        except OSError:
            pass  # another machine was faster


def say(message):
    # type: (dict[str, object]) -> None
    data = (json.dumps(message) + "\n").encode("ascii")
    while data:
        data = data[os.write(1, data) :]


if SETTINGS:
    sys.exit(main())
