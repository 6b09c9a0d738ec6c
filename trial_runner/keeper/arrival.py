"""The program that a manager runs first on a machine it logs in to: says what that is, puts `trial_runner` there,
attaches.

Sent as text and run by the machine's own Python with `SETTINGS` set, so it imports nothing of ours before it has
arrived. The conversation, on standard input and output: a line of JSON (`describe`); the archive, where `has` is false;
a line of JSON, ``{"ready": true}`` or ``{"failed": sentence}``; then the keeper's own frames. `SETTINGS` has `archive`
(the hash of its bytes), `size` (how many), `folder` (of this manager and machine, below the home folder), `look`:
nothing is left there and nothing attached, and `gpus`: seconds for a *reading* of them, its second line; 0: none.
"""

import errno
import json
import os
import platform
import re
import shutil
import signal
import sys
import tempfile
import time

SETTINGS = globals().get("SETTINGS", {})  # the manager sets it in front of this text
_ROOT = ".nni-manager"
#: Programs of other versions, which keepers that still have jobs may run from, stay so many seconds.
_OLD_S = 30 * 24 * 3600


def main():
    # type: () -> int
    root = os.path.join(os.path.expanduser("~"), _ROOT)
    program = os.path.join(root, "bin", SETTINGS["archive"])
    folder = os.path.join(root, SETTINGS["folder"])
    has = os.path.isdir(program)
    say(describe(root, folder, has))
    if SETTINGS["look"]:
        if SETTINGS["gpus"]:
            say(gpus(program, has))
        return 0
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        if not has:
            install(receive(SETTINGS["size"]), program)
        remove_old(os.path.dirname(program), SETTINGS["archive"])
    except OSError as error:
        say({"failed": "{} cannot be written ({})".format(error.filename or root, error.strerror)})
        return 1
    sys.path.insert(0, program)
    try:
        from trial_runner.keeper.__main__ import main as keeper
    except ImportError as error:
        say({"failed": "its Python {} cannot run the keeper ({})".format(platform.python_version(), error)})
        return 1
    say({"ready": True})
    return keeper(["attach", "--directory", os.path.join(folder, "keeper")])


def describe(root, folder, has):
    # type: (str, str, bool) -> dict[str, object]
    """A description of the machine: the fields that the manager goes by, and those that it tells people."""
    there = existing(root)
    disk = os.statvfs(there)
    return {
        "has": has,
        "python": list(sys.version_info[:3]),
        "system": platform.system(),
        "kernel": platform.release(),
        "host": platform.node(),
        "folder": folder,
        "program": os.path.join(root, "bin", SETTINGS["archive"]),
        "interpreter": sys.executable,
        "environment": dict(os.environ),
        "processors": len(os.sched_getaffinity(0)),
        "now_ms": int(time.time() * 1000),
        "disk_free_bytes": disk.f_frsize * disk.f_bavail,
        "may_write": os.access(there, os.W_OK | os.X_OK),
        "home": os.path.dirname(root),
        "keeper": keeper_version(os.path.join(folder, "keeper")),
    }


def keeper_version(directory):
    # type: (str) -> str
    """The version of the keeper that serves the directory, which is not asked: it speaks to one at a time. Empty: none
    does, or it cannot be told."""
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
    """The driver's reading of the GPUs; the program for it is removed before it asks."""
    draft = tempfile.mkdtemp()
    try:
        if not has:
            program = os.path.join(draft, "runner.pyz")
            with open(program, "wb") as file:
                file.write(receive(SETTINGS["size"]))
        sys.path.insert(0, program)
        from trial_runner.gpu_probe.__main__ import Probe
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
            process["job"] = None  # nobody was asked
    return reading


class DriverHangs(Exception):
    """An error: the driver hangs. No OSError, as those are the driver's own."""


def lose_patience(number, frame):
    # type: (int, object) -> None
    raise DriverHangs("the driver has not answered for {} s".format(SETTINGS["gpus"]))


def existing(path):
    # type: (str) -> str
    """The nearest folder above that there is."""
    while not os.path.isdir(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    return path


def receive(size):
    # type: (int) -> bytes
    """Bytes from standard input, which has nothing else before the manager hears of the keeper."""
    pieces = []
    while size:
        piece = os.read(0, min(size, 256 * 1024))
        if not piece:
            raise OSError(errno.EPIPE, "the connection ended", "the program")
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def install(archive, program):
    # type: (bytes, str) -> None
    """Installs the program whole or not at all, whoever else does: several machines may share this home folder."""
    import io
    import zipfile

    draft = "{}.{}-{}".format(program, platform.node(), os.getpid())
    os.makedirs(draft, mode=0o700)
    try:
        zipfile.ZipFile(io.BytesIO(archive)).extractall(draft)
        os.rename(draft, program)
    except OSError:
        shutil.rmtree(draft, ignore_errors=True)
        if not os.path.isdir(program):  # somebody else was faster
            raise


def remove_old(folder, current):
    # type: (str, str) -> None
    """Programs that nobody has used for long."""
    os.utime(os.path.join(folder, current), None)
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        try:
            if name != current and time.time() - os.stat(path).st_mtime > _OLD_S:
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
