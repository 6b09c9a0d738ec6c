"""`python -m trial_runner.keeper`, and the entry of the archive `keeper.pyz`: the process around a server.

Sets up its folder, lock and process group; a second keeper of a folder exits.
"""

import argparse
import errno
import os
import signal
import socket
import stat
import sys
from contextlib import suppress
from typing import List, Optional

from trial_runner import processes
from trial_runner.keeper import lock_file
from trial_runner.keeper.serving.listener import MAX_PATH_BYTES
from trial_runner.keeper.serving.server import Server
from trial_runner.wire import full_disks
from trial_runner.wire.descriptors import try_lock

READY = b"ready\n"


def serve(directory: str, socket_path: str, ready_fd: Optional[int]) -> int:
    """Serves until no longer needed; returns an exit code. If another keeper serves the directory: 0, with a
    message."""
    job_umask = os.umask(0o077)
    os.makedirs(directory, mode=0o700, exist_ok=True)
    _leave_session()
    _keep_descriptors_from_jobs()
    lock = os.open(os.path.join(directory, lock_file.NAME), os.O_RDWR | os.O_CREAT, 0o600)
    if not try_lock(lock):
        return _leave_to_other(directory, socket_path, lock, ready_fd)
    lock_file.write(lock, socket_path)
    _serve_alone(directory, socket_path, job_umask, ready_fd)
    return 0


def default_socket_path(directory: str) -> str:
    """The path of the socket: in the directory or, if that is too long, in this user's temporary folder, which is
    created. Raises OSError if another user could put a socket there."""
    path = os.path.join(directory, "keeper.sock")
    if len(os.fsencode(path)) <= MAX_PATH_BYTES:
        return path
    import tempfile  # imports much and is seldom needed
    from hashlib import sha256

    digest = sha256(os.fsencode(directory)).hexdigest()[:16]
    folder = os.path.join(tempfile.gettempdir(), "nni-manager-{}".format(os.getuid()))
    _make_private(folder)
    return os.path.join(folder, digest + ".sock")


def _make_private(folder: str) -> None:
    with suppress(FileExistsError):
        os.mkdir(folder, 0o700)
    status = os.lstat(folder)  # a link could lead to another user's folder
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise PermissionError(
            errno.EPERM, "not a private folder of this user, as required for the keeper's socket", folder
        )


def _leave_session() -> None:
    """Detaches from the terminal and from the daemon's process group."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        # a handler, not SIG_IGN: jobs would inherit that
        signal.signal(number, lambda *_: None)
    with suppress(PermissionError):  # the starting process did it already
        os.setsid()


def _keep_descriptors_from_jobs() -> None:
    """Keeps descriptors that the starting process left open from jobs; our own close on exec."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            with suppress(OSError):  # the listing's own
                os.set_inheritable(int(name), False)


def _serve_alone(directory: str, socket_path: str, job_umask: int, ready_fd: Optional[int]) -> None:
    os.close(processes.open_pidfd(os.getpid()))  # reports an unsupported kernel before any job is touched
    processes.become_subreaper()
    os.chdir(directory)
    server = Server(directory, socket_path, job_umask)
    server.open()
    _tell_ready(ready_fd)
    _let_go_of_streams()
    server.run()


def _leave_to_other(directory: str, socket_path: str, lock: int, ready_fd: Optional[int]) -> int:
    print("Another keeper already serves {}.".format(directory), file=sys.stderr)
    other = lock_file.read(lock)
    if _answers(other.socket or socket_path):
        _tell_ready(ready_fd)
    elif lock_file.is_keeper(other.pid, directory):
        # its socket was removed, or is about to be created: it creates it again
        processes.send_signal(other.pid, signal.SIGUSR1)
    return 0


def _answers(socket_path: str) -> bool:
    """Whether the file exists and a connection would be accepted; does not replace the present connection."""
    probe = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        probe.connect(socket_path)
    except OSError as error:
        # a listening stream socket refuses datagrams by its type; a file without a listener refuses the connection
        return error.errno == errno.EPROTOTYPE
    finally:
        probe.close()
    return False


def _tell_ready(ready_fd: Optional[int]) -> None:
    if ready_fd is None:
        return
    with suppress(BrokenPipeError):
        os.write(ready_fd, READY)
    os.close(ready_fd)


def _let_go_of_streams() -> None:
    """Closes our output: its reader must not wait for our end."""
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    os.close(null)


def main(arguments: Optional[List[str]] = None) -> int:
    """Exit code 0: served until not needed, another keeper serves, or the peer hung up; 1: failed; 2: wrong usage."""
    options = _parser().parse_args(arguments)
    directory = os.path.abspath(options.directory)
    socket_path = os.path.abspath(options.socket or default_socket_path(directory))
    if len(os.fsencode(socket_path)) > MAX_PATH_BYTES:
        return _fail("The socket's path {} is too long: use at most 107 bytes.".format(socket_path))
    try:
        if options.verb == "attach":
            # uses threads and subprocesses, which serving does not need
            from trial_runner.keeper.serving.attach import attach

            return attach(directory, socket_path)
        return serve(directory, socket_path, options.ready_fd)
    except OSError as error:
        place = " ({})".format(error.filename) if error.filename else ""
        return _fail("The keeper of {} cannot run: {}{}.".format(directory, full_disks.reason(error, directory), place))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="keeper", description="Starts and watches the jobs of a machine.")
    verbs = parser.add_subparsers(dest="verb", metavar="serve|attach")
    verbs.required = True
    serving = verbs.add_parser("serve", help="serve one directory until it has neither jobs nor a connection")
    attaching = verbs.add_parser(
        "attach", help="bridge standard input and output to a keeper, which is started if needed"
    )
    for verb in (serving, attaching):
        verb.add_argument("--directory", required=True, help="folder of this keeper's files")
        verb.add_argument("--socket", help="path of its socket; by default keeper.sock in the directory")
    serving.add_argument("--ready-fd", type=int, help="descriptor that gets a line when the keeper listens")
    return parser


def _fail(sentence: str) -> int:
    print(sentence, file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
