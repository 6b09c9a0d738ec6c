"""Starts, stops and asks a Slurm of Debian's packages, this machine's own or a root's. Its nodes are processes that can
lose power.

Each node has a mount and process namespace, a host name and a munged of its own: a munged accepts a credential once.
"""

from __future__ import annotations

import os
import secrets
import select
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.app.foreign_port import free_port
from tests.fakes.slurm import installation, memory
from tests.fakes.slurm.installation import Installation
from tests.fakes.slurm.settings import ACCOUNTS, NODES, ClusterKind, slurm_conf, slurmdbd_conf
from tests.waiting import until
from trial_runner.wire.descriptors import Descriptor

_START_S = 60.0


def missing(kind: ClusterKind) -> str:
    """Why no cluster of this kind can be started here; empty: it can."""
    return installation.missing(kind.version) or memory.missing(kind.memory)


class SlurmCluster:
    """`folder`: empty, its own."""

    def __init__(self, folder: Path, kind: ClusterKind) -> None:
        self.folder = folder
        self.kind = kind
        self.conf = folder / "slurm.conf"
        self._password = secrets.token_hex(8)
        self._ports = {name: free_port() for name in ("slurmctld", "slurmdbd", "mariadb", *NODES)}
        #: Name → descriptor of its process.
        self._running: dict[str, int] = {}
        self._programs = Installation(kind.version, folder)
        self._first_job = secrets.randbelow(60) * memory.MOST_JOBS + memory.MOST_JOBS
        #: Folder with programs in front of the clients'; empty: none.
        self.front = ""

    @property
    def environment(self) -> dict[str, str]:
        """For clients."""
        path = f"{self.front}:{self._programs.path}" if self.front else self._programs.path
        return {**os.environ, "SLURM_CONF": str(self.conf), "PATH": path}

    def start(self) -> None:
        self._write()
        if holder := self._programs.holder:
            self._programs.enter(self._run("mounts", holder))
            until(self._programs.is_mounted, _START_S, "the mounts of another suite")
        self._run("munged", self._programs.program(self._munged(self.folder / "munge", self.folder)))
        until((self.folder / "munge/socket").exists, _START_S, "munged")
        if self.kind.has_accounting:
            self._start_database()
            self.start_accounting()
            for command in ACCOUNTS:
                self.call("sacctmgr", "-i", "-Q", *command.split(), check=False)
        self.start_controller()
        for node in NODES:
            self.start_node(node)
        self.until_ready()

    def stop(self) -> None:
        """Ends everything, by pid."""
        for name in (*NODES, "slurmctld", "slurmdbd", "mariadb", "munged", "mounts"):
            self.end(name, signal.SIGKILL if name in NODES else signal.SIGTERM)
        if self.kind.memory == memory.CGROUP:
            memory.remove_groups(self._first_job)

    def start_controller(self) -> None:
        self._run("slurmctld", self._programs.program(["slurmctld", "-D", "-f", str(self.conf)]))
        until(lambda: self.call("scontrol", "ping", check=False).returncode == 0, _START_S, "slurmctld")

    def start_accounting(self) -> None:
        program = self._programs.program(["slurmdbd", "-D"])
        self._run("slurmdbd", program, SLURM_CONF=str(self.folder / "slurmdbd.conf"))
        until(lambda: self.call("sacctmgr", "-n", "list", "cluster", check=False).returncode == 0, _START_S, "slurmdbd")

    def start_node(self, node: str) -> None:
        own = self.folder / node
        for path in (own / "spool", own / "munge"):
            shutil.rmtree(path, ignore_errors=True)
            path.mkdir(parents=True, mode=0o755)
        munged = " ".join(self._munged(self.folder / "munge", own))
        root = self._programs.prefix
        script = (
            f"mount --make-rprivate / && hostname {node} && mount --bind {own}/munge {root}{self.folder}/munge &&"
            f" mount --bind {self.folder}/hosts {root}/etc/hosts && mount -t proc proc {root}/proc || exit 1\n"
            f"chroot {root or '/'} {munged} &\n"
            f"until [ -S {own}/munge/socket ]; do sleep 0.05; done\n"
            f"exec chroot {root or '/'} slurmd -D -f {self.conf} -N {node}"
        )
        unshare = ["unshare", "--mount", "--pid", "--uts", "--fork", "--kill-child", "--mount-proc", "bash", "-c"]
        self._run(node, self._programs.outside([*unshare, script]))

    def end(self, name: str, number: int = signal.SIGTERM) -> None:
        """Ends a program: a node with all its processes at once, as without power."""
        process = self._running.pop(name, None)
        if process is not None:
            with Descriptor(process), suppress(ProcessLookupError):
                signal.pidfd_send_signal(process, number)
                select.select([process], [], [], _START_S)

    def until_ready(self) -> None:
        """Returns when all nodes take jobs."""
        ready = {"idle", "mixed", "allocated", "completing"}
        until(lambda: set(self.call("sinfo", "-h", "-N", "-p", "main", "-o", "%T").stdout.split()) <= ready, _START_S)

    def call(self, *command: str, check: bool = True, text: str = "") -> subprocess.CompletedProcess[str]:
        """The result of a client program."""
        return subprocess.run(
            command, env=self.environment, input=text, capture_output=True, text=True, timeout=_START_S, check=check
        )

    def state_of(self, id: str) -> str:
        """The state of a job, as the controller has it; empty: it does not know it."""
        return self.call("squeue", "-h", "-t", "all", "-j", id, "-o", "%T", check=False).stdout.strip()

    def clear(self) -> None:
        """Ends all jobs, and waits for that."""
        self.call("scancel", "--user=root", "--state=PENDING", check=False)
        self.call("scancel", "--user=root", "--full", "--signal=KILL", check=False)
        self.call("scancel", "--user=root", check=False)
        until(lambda: not self.call("squeue", "-h").stdout.strip(), _START_S, "the end of all jobs")

    def _write(self) -> None:
        for name in ("munge", "state", "log"):
            (self.folder / name).mkdir(mode=0o755)
        # another user's munged is refused below a folder that others may write
        self.folder.chmod(0o755)
        key = self.folder / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o600)
        host = socket.gethostname().partition(".")[0]
        hosts = Path("/etc/hosts").read_text() + f"127.0.0.1 {' '.join(NODES)}\n"
        (self.folder / "hosts").write_text(hosts)
        self.conf.write_text(slurm_conf(self.folder, host, self._ports, self.kind, self._first_job))
        (self.folder / "cgroup.conf").write_text(memory.cgroup_conf(self.kind.memory))
        (self.folder / "gres.conf").write_text("")
        accounting = self.folder / "slurmdbd.conf"
        accounting.write_text(slurmdbd_conf(self.folder, host, self._ports, self._password))
        accounting.chmod(0o600)

    def _munged(self, sockets: Path, own: Path) -> list[str]:
        files = {"pid-file": "munged.pid", "log-file": "munged.log", "seed-file": "munged.seed"}
        given = [f"--{option}={own / name}" for option, name in files.items()]
        key = f"--key-file={self.folder / 'munge.key'}"
        return ["munged", "--foreground", "--force", f"--socket={sockets / 'socket'}", key, *given]

    def _start_database(self) -> None:
        data, socket_file = self.folder / "database", self.folder / "database.sock"
        options = ["--no-defaults", "--user=root", f"--datadir={data}"]
        made = ["--auth-root-authentication-method=normal", "--skip-test-db"]
        self.call("mariadb-install-db", *options, *made)
        small = ["--innodb-buffer-pool-size=16M", "--innodb-log-file-size=8M", "--innodb-flush-log-at-trx-commit=0"]
        own = [f"--socket={socket_file}", "--bind-address=127.0.0.1", f"--port={self._ports['mariadb']}"]
        self._run("mariadb", ["mariadbd", *options, *own, *small, "--performance-schema=OFF", "--skip-name-resolve"])
        client = ["mariadb", "--no-defaults", f"--socket={socket_file}", "-u", "root"]
        until(lambda: self.call(*client, "-e", "SELECT 1", check=False).returncode == 0, _START_S, "MariaDB")
        user = f"slurm@'127.0.0.1' IDENTIFIED BY '{self._password}'"
        grant = "GRANT ALL ON slurm_acct.* TO slurm@'127.0.0.1'"
        self.call(*client, text=f"CREATE DATABASE slurm_acct; CREATE USER {user}; {grant};")

    def _run(self, name: str, command: Sequence[str], **variables: str) -> int:
        """Starts a program that is no child of the test, as others use it after it; its process id."""
        environment: Mapping[str, str] = {**self.environment, **variables}
        script = '"$@" >> "$0" 2>&1 < /dev/null & echo $!'
        started = subprocess.run(
            ["sh", "-c", script, self.folder / "log" / name, *command],
            env=environment,
            stdout=subprocess.PIPE,
            start_new_session=True,
            check=True,
        )
        self._running[name] = os.pidfd_open(int(started.stdout))
        return int(started.stdout)


@contextmanager
def running(folder: Path, kind: ClusterKind) -> Iterator[SlurmCluster]:
    """A context with a running cluster. `folder`: made for it."""
    folder.mkdir()
    cluster = SlurmCluster(folder, kind)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
