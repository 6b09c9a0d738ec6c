"""Mounts the experiment's shared storage on the machine that runs this program, and unmounts it.

The text is sent to the machine and run by its own Python with `SETTINGS` set, so it imports nothing of ours. It prints
one line of JSON: `state`, `point` (the mount point, absolute), `sentence` and `fix` (empty if the state is ready).

`SETTINGS`: `action` (look, use, leave), `point` (relative to the home folder), `may_mount`, `mark` (None, or `file`
below the mount point and its `text`: a mount without it is a different one), `user` (the mount's), `here` (the
manager's path, for sentences), and of the storage `kind`, then `source`, or `account`, `key` and `container`. In a job
also `in_job`: `key_variable`, which contains the key, `fixes` (state → advice), `otherwise` (the alternative). There it
prints only a sentence on stderr, and exits with 1.

Mounts are recorded below the home folder, which machines may share, with their users: the last user unmounts, and other
mounts stay. A job's home is a folder of its container, as its real one may be on storage. Without permission to mount,
it uses `sudo` if that needs no password; otherwise it prints the command to type.
"""

import fcntl
import getpass
import hashlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from typing import Any, Dict, List, Optional, Tuple

SETTINGS: Dict[str, Any] = globals().get("SETTINGS", {})  # the manager prepends the assignment to this text

READY, MOUNTABLE, ABSENT, OTHER, DENIED, FAILED = "ready", "mountable", "absent", "other", "denied", "failed"
NFS = "NFS"
_RECORDS = os.path.join(".nni-manager", "mounts")
#: Seconds: until a silent server counts as unreachable; and until a file just written elsewhere must be visible.
_MOUNT_S, _PATIENCE_S, _LOOK_S = 20.0, 5.0, 0.2
#: Seconds for which a machine may show outdated files of another one.
_CACHE_S = 5
_BLOBFUSE = "blobfuse2"
_SYSTEM_PATH = "/usr/local/sbin:/usr/sbin:/sbin"


def main() -> None:
    in_job = SETTINGS.get("in_job")
    point = os.path.normpath(os.path.join(os.path.expanduser("~"), os.path.expanduser(SETTINGS["point"])))
    try:
        if in_job:
            SETTINGS["key"], os.environ["HOME"] = os.environ.pop(in_job["key_variable"], ""), tempfile.mkdtemp()
        answer = _ACTIONS[SETTINGS["action"]](point)
    except OSError as error:
        answer = _no(FAILED, "{}: {}".format(error.filename or point, error.strerror))
    if not in_job:
        print(json.dumps(dict(answer, point=point)), flush=True)
    elif answer["state"] != READY:
        fix = in_job["fixes"].get(answer["state"], answer["fix"])
        sys.exit("sharedStorage: " + "; ".join(filter(None, (answer["sentence"], fix, in_job["otherwise"]))))


# The actions


def look(point: str) -> Dict[str, str]:
    """The finding of `use`, without changes."""
    return _judge(point) or _hindrance(point) or {"state": MOUNTABLE}


def use(point: str) -> Dict[str, str]:
    """Mounts it if needed; records the users of our mounts."""
    found = _judge(point)
    if found is not None and not Record(point).source:
        return found
    with Record(point) as record:
        found = _judge(point)
        if found is None:
            found = _hindrance(point) or _mount(point, record)
        if found["state"] == READY and record.source:
            record.note_user()
    return found


def leave(point: str) -> Dict[str, str]:
    """Unmounts a mount of ours without other users."""
    Record(point).remove_earlier()
    if not Record(point).source:
        return {"state": ABSENT}
    with Record(point) as record:
        if not record.drop_user():
            return {"state": READY}
        failure = _unmount(point) if _mounted(point) else ""
        if failure:
            return _no(FAILED, failure, "unmount it yourself: `sudo umount {}`".format(shlex.quote(point)))
        record.remove()
    return {"state": ABSENT}


_ACTIONS = {"look": look, "use": use, "leave": leave}


# State


def _judge(point: str) -> Optional[Dict[str, str]]:
    """The answer about a mount point; None: not mounted, but allowed."""
    mounted, mark = _mounted(point), SETTINGS["mark"]
    if mark is not None and _sees(point, mark, _PATIENCE_S if mounted else 0.0):
        return _writable(point)
    if not SETTINGS["may_mount"]:
        return _as_folder(point)
    if mounted is None:
        return _not_empty(point) if os.path.isdir(point) and os.listdir(point) else None
    ours = Record(point).source
    if mark is None and (ours == _source() if ours else _is_it(*mounted)):
        return _writable(point)
    sentence = "{} of {} is mounted at {}, not {}".format(*mounted, point, _it())
    return _no(OTHER, sentence, "unmount that, or use another folder")


def _as_folder(point: str) -> Dict[str, str]:
    """The answer if the user is to mount the storage."""
    if os.path.isdir(point):
        return _writable(point)
    sentence = "the folder {} does not exist, so nothing is mounted there".format(point)
    return _no(ABSENT, sentence, "type there: " + _typed(point))


def _not_empty(point: str) -> Dict[str, str]:
    sentence = "{} is a folder with other files in it, not {}".format(point, _it())
    return _no(OTHER, sentence, "mount the storage there ({}), or use another folder".format(_typed(point)))


def _writable(point: str) -> Dict[str, str]:
    if "in_job" in SETTINGS or os.access(point, os.W_OK | os.X_OK):  # a job only needs its attempt's folder
        return {"state": READY}
    sentence = "user {} may not write into {}".format(_user(), point)
    return _no(DENIED, sentence, "give that user write permission, on the storage's server or with `chmod`")


def _it() -> str:
    return "the storage that the manager has at {}".format(SETTINGS["here"]) if SETTINGS["mark"] else _source()


def _source() -> str:
    if SETTINGS["kind"] == NFS:
        return str(SETTINGS["source"])
    return "container {} of {}".format(SETTINGS["container"], SETTINGS["account"])


def _is_it(kind: str, source: str) -> bool:
    """Whether it is the wanted storage, according to the system's list of mounts."""
    if SETTINGS["kind"] == NFS:
        return kind.startswith("nfs") and source.rstrip("/") == SETTINGS["source"].rstrip("/")
    return kind.startswith("fuse")


def _sees(point: str, mark: Dict[str, str], patience_s: float) -> bool:
    deadline = time.monotonic() + patience_s
    while True:
        with suppress(OSError), open(os.path.join(point, mark["file"]), encoding="utf-8") as file:
            if file.read().strip() == mark["text"]:
                return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(_LOOK_S)


def _mounted(point: str) -> Optional[Tuple[str, str]]:
    """Kind and source of the file system at a point, from the list of mounts, which never blocks."""
    wanted, found = os.path.join(os.path.realpath(os.path.dirname(point)), os.path.basename(point)), None
    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        for line in file:
            fields, _, rest = line.partition(" - ")
            if _unescaped(fields.split()[4]) == wanted:
                kind, source = rest.split()[:2]
                found = kind, _unescaped(source)
    return found


def _unescaped(text: str) -> str:
    return text.encode().decode("unicode_escape").encode("latin-1").decode("utf-8", "replace")


# Mounting


def _hindrance(point: str) -> Optional[Dict[str, str]]:
    """Why this process cannot mount it."""
    if SETTINGS["kind"] == NFS and not _may_as_root("mount"):
        fix = "type there: " + _typed(point)
        return _no(DENIED, "{} is not mounted, and user {} may not mount".format(point, _user()), fix)
    program, package = ("mount.nfs", _NFS_PACKAGE) if SETTINGS["kind"] == NFS else (_BLOBFUSE, _BLOBFUSE_PACKAGE)
    if shutil.which(program, path=_path()) is None:
        return _no(ABSENT, "{} is not mounted, and {} is not installed".format(point, program), package)
    is_makeable = os.path.isdir(point) or os.access(_existing(point), os.W_OK | os.X_OK)
    if is_makeable or (SETTINGS["kind"] == NFS and _may_as_root("mkdir")):
        return None
    fix = "type there: `sudo mkdir -p {0} && sudo chown {1} {0}`".format(shlex.quote(point), _user())
    return _no(DENIED, "user {} may not create {}".format(_user(), point), fix)


_NFS_PACKAGE = "install NFS's client: `sudo apt install nfs-common`, or `sudo dnf install nfs-utils`"
_BLOBFUSE_PACKAGE = "install BlobFuse2: https://learn.microsoft.com/azure/storage/blobs/blobfuse2-how-to-deploy"


def _typed(point: str) -> str:
    folder = shlex.quote(point)
    if SETTINGS["kind"] == NFS:
        return "`sudo mkdir -p {0} && sudo mount -t nfs {1} {0}`".format(folder, shlex.quote(SETTINGS["source"]))
    return "`sudo mkdir -p {0} && sudo blobfuse2 mount {0} --config-file=FILE`".format(folder)


def _may_as_root(program: str) -> bool:
    """Whether a program can run as root without a password; tested with its version, which changes nothing."""
    return os.geteuid() == 0 or not _run(_as_root([program, "--version"]))


def _as_root(words: List[str]) -> List[str]:
    return words if os.geteuid() == 0 else ["sudo", "-n", *words]


def _make_folder(point: str) -> None:
    """Creates the folder, as root if necessary: the mounted storage has its own permissions."""
    try:
        os.makedirs(point, exist_ok=True)
    except PermissionError:
        if SETTINGS["kind"] != NFS or _run(_as_root(["mkdir", "-p", point])):
            raise


def _mount(point: str, record: "Record") -> Dict[str, str]:
    _make_folder(point)
    record.begin()
    if SETTINGS["kind"] == NFS:
        # reports the first failure instead of retrying for two minutes
        words = _as_root(["mount", "-t", "nfs", "-o", "retry=0", SETTINGS["source"], point])
    else:
        words = [_BLOBFUSE, "mount", point, "--config-file={}".format(record.write_settings())]
    failure = _run(words)
    if failure:
        record.remove()
        return _no(FAILED, "{} could not be mounted at {}: {}".format(_source(), point, failure), _why(failure))
    found = _judge(point)
    if found is None or found["state"] == OTHER:
        _unmount(point)
        record.remove()
        return found or _no(FAILED, "{} was mounted, but is missing".format(point))
    return found


def _why(failure: str) -> str:
    if "permitted" in failure or "superuser" in failure or "denied" in failure:
        return "check that this machine may mount it: its address at the server; CAP_SYS_ADMIN, in a container"
    return "check server, folder and credentials"


def _unmount(point: str) -> str:
    """Why unmounting failed. Open files delay it: it leaves the tree now, and ends when they are closed."""
    if SETTINGS["kind"] != NFS and not _run([_BLOBFUSE, "unmount", point]):
        return ""
    take_root = _as_root if SETTINGS["kind"] == NFS else list
    return _run(take_root(["umount", point])) and _run(take_root(["umount", "-l", point]))


def _run(words: List[str]) -> str:
    """The command's output if it failed. A background process does not keep our pipe open."""
    environment = dict(os.environ, LC_ALL="C", PATH=_path())
    with tempfile.TemporaryFile() as said:
        try:
            child = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=environment, start_new_session=True
            )
        except OSError as error:
            return "{}: {}".format(words[0], error.strerror)
        try:
            status = child.wait(_MOUNT_S)
        except subprocess.TimeoutExpired:
            # `mount.nfs`, for which `mount` waits, would mount later, unseen; `sudo`'s processes cannot be killed
            with suppress(PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
            return "no answer within {:.0f} s".format(_MOUNT_S)
        said.seek(0)
        text = " ".join(said.read(2000).decode("utf-8", "replace").split())
    if SETTINGS.get("key"):
        text = text.replace(SETTINGS["key"], "******")
    return (text or "{} ended with {}".format(words[0], status)) if status else ""


class Record:
    """The record of a mount of ours: source, a file for each user, settings of BlobFuse2. Locked while entered.

    It is below a folder for the machine's boot: mounts belong to one machine and end with its boot.
    """

    def __init__(self, point: str) -> None:
        # the host name, too: clones of a machine may share an id; containers of a machine share a boot
        machine = _text_of("/etc/machine-id") + os.uname().nodename
        names = (machine, _text_of("/proc/sys/kernel/random/boot_id"), point)
        self._folder = os.path.join(os.path.expanduser("~"), _RECORDS, *map(_digest, names))
        self._users = os.path.join(self._folder, "users")
        self._lock = -1

    def __enter__(self) -> "Record":
        os.makedirs(os.path.dirname(self._folder), mode=0o700, exist_ok=True)
        self._lock = os.open(self._folder + ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._lock)

    @property
    def source(self) -> str:
        """The storage that we mounted there; empty: none."""
        return _text_of(os.path.join(self._folder, "source"))

    def begin(self) -> None:
        """Starts the record before mounting."""
        self.remove_earlier()
        self.remove()
        os.makedirs(self._users, mode=0o700)
        with open(os.path.join(self._folder, "source"), "w", encoding="utf-8") as file:
            file.write(_source())

    def note_user(self) -> None:
        open(os.path.join(self._users, SETTINGS["user"]), "w", encoding="utf-8").close()

    def drop_user(self) -> bool:
        """Whether no user is left."""
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(self._users, SETTINGS["user"]))
        return not os.listdir(self._users)

    def remove(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def remove_earlier(self) -> None:
        """Removes this machine's records of earlier boots."""
        machine, boot = os.path.split(os.path.dirname(self._folder))
        for name in set(os.listdir(machine) if os.path.isdir(machine) else ()) - {boot}:
            shutil.rmtree(os.path.join(machine, name), ignore_errors=True)

    def write_settings(self) -> str:
        """The path of a private file with the key, which is never an argument."""
        path, cache = os.path.join(self._folder, "blobfuse2.yaml"), os.path.join(self._folder, "cache")
        os.makedirs(cache, mode=0o700)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(_blobfuse_settings(cache))
        return path


def _blobfuse_settings(cache: str) -> str:
    """JSON, which is valid YAML. Only root may allow other users without the administrator's configuration."""
    expiry = ("attribute-expiration-sec", "entry-expiration-sec", "kernel-list-cache-expiration-sec")
    account = {"account-name": SETTINGS["account"], "account-key": SETTINGS["key"]}
    settings = {
        "allow-other": os.geteuid() == 0,
        "logging": {"type": "syslog", "level": "log_warning"},
        "components": ["libfuse", "file_cache", "attr_cache", "azstorage"],
        "libfuse": dict({name: _CACHE_S for name in expiry}, **{"negative-entry-expiration-sec": 1}),
        "file_cache": {"path": cache, "timeout-sec": _CACHE_S},
        "attr_cache": {"timeout-sec": _CACHE_S},
        "azstorage": dict(account, type="block", mode="key", container=SETTINGS["container"]),
    }
    return json.dumps(settings)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _text_of(path: str) -> str:
    """Empty if the file does not exist."""
    with suppress(FileNotFoundError), open(path, encoding="utf-8") as file:
        return file.read()
    return ""


def _existing(path: str) -> str:
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    return path


def _path() -> str:
    return "{}:{}".format(os.environ.get("PATH", os.defpath), _SYSTEM_PATH)


def _user() -> str:
    with suppress(KeyError, OSError):
        return getpass.getuser()
    return str(os.geteuid())


def _no(state: str, sentence: str, fix: str = "") -> Dict[str, str]:
    return {"state": state, "sentence": sentence, "fix": fix}


if SETTINGS:
    main()
