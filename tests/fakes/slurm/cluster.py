"""Starts, stops and asks a Slurm of Debian's packages. Its nodes are processes that can lose power.

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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.app.foreign_port import free_port
from tests.fakes.slurm.settings import ACCOUNTS, NODES, slurm_conf, slurmdbd_conf
from tests.waiting import until
from trial_runner.wire.descriptors import Descriptor

_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "slurmdbd", "mariadbd", "unshare", "nsenter")
_START_S = 60.0


def missing() -> str:
    """Why no cluster can be started here; empty: it can."""
    if os.getuid() != 0:
        return "Slurm: start it as root"
    absent = [name for name in _PROGRAMS if shutil.which(name, path=_PATH) is None]
    if absent:
        return (
            f"Slurm: {', '.join(absent)} missing; install slurmctld slurmd slurm-client slurmdbd munge mariadb-server"
        )
    return ""


class SlurmCluster:
    """`folder`: empty, its own. `min_job_age_s`: seconds for which the controller remembers ended jobs."""

    def __init__(self, folder: Path, *, has_accounting: bool = True, min_job_age_s: int = 300) -> None:
        self.folder = folder
        self.has_accounting = has_accounting
        self.conf = folder / "slurm.conf"
        self._password = secrets.token_hex(8)
        self._ports = {name: free_port() for name in ("slurmctld", "slurmdbd", "mariadb", *NODES)}
        #: Name → descriptor of its process.
        self._running: dict[str, int] = {}
        self._min_job_age_s = min_job_age_s
        #: Folder with programs in front of the clients'; empty: none.
        self.front = ""

    @property
    def environment(self) -> dict[str, str]:
        """For clients."""
        path = f"{self.front}:{_PATH}" if self.front else _PATH
        return {**os.environ, "SLURM_CONF": str(self.conf), "PATH": path}

    def start(self) -> None:
        self._write()
        self._run("munged", self._munged(self.folder / "munge", self.folder))
        until((self.folder / "munge/socket").exists, _START_S, "munged")
        if self.has_accounting:
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
        for name in (*NODES, "slurmctld", "slurmdbd", "mariadb", "munged"):
            self.end(name, signal.SIGKILL if name in NODES else signal.SIGTERM)

    def start_controller(self) -> None:
        self._run("slurmctld", ["slurmctld", "-D", "-f", str(self.conf)])
        until(lambda: self.call("scontrol", "ping", check=False).returncode == 0, _START_S, "slurmctld")

    def start_accounting(self) -> None:
        self._run("slurmdbd", ["slurmdbd", "-D"], SLURM_CONF=str(self.folder / "slurmdbd.conf"))
        until(lambda: self.call("sacctmgr", "-n", "list", "cluster", check=False).returncode == 0, _START_S, "slurmdbd")

    def start_node(self, node: str) -> None:
        own = self.folder / node
        for path in (own / "spool", own / "munge"):
            shutil.rmtree(path, ignore_errors=True)
            path.mkdir(parents=True, mode=0o755)
        munged = " ".join([*self._munged(self.folder / "munge", own, "--force"), "&"])
        script = (
            f"mount --make-rprivate / && hostname {node} && mount --bind {own}/munge {self.folder}/munge &&"
            f" mount --bind {self.folder}/hosts /etc/hosts || exit 1\n{munged}\n"
            f"until [ -S {self.folder}/munge/socket ]; do sleep 0.05; done\n"
            f"exec slurmd -D -f {self.conf} -N {node}"
        )
        unshare = ["unshare", "--mount", "--pid", "--uts", "--fork", "--kill-child", "--mount-proc", "bash", "-c"]
        self._run(node, [*unshare, script])

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
        self.conf.write_text(
            slurm_conf(
                self.folder,
                host,
                self._ports,
                has_accounting=self.has_accounting,
                min_job_age_s=self._min_job_age_s,
            )
        )
        for name in ("cgroup.conf", "gres.conf"):
            (self.folder / name).write_text("")
        accounting = self.folder / "slurmdbd.conf"
        accounting.write_text(slurmdbd_conf(self.folder, host, self._ports, self._password))
        accounting.chmod(0o600)

    def _munged(self, sockets: Path, own: Path, *options: str) -> list[str]:
        files = {"pid-file": "munged.pid", "log-file": "munged.log", "seed-file": "munged.seed"}
        given = [f"--{option}={own / name}" for option, name in files.items()]
        key = f"--key-file={self.folder / 'munge.key'}"
        return ["munged", "--foreground", "--force", f"--socket={sockets / 'socket'}", key, *given, *options]

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

    def _run(self, name: str, command: list[str], **variables: str) -> None:
        """Starts a program that is no child of the test, which others use after it."""
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


@contextmanager
def running(folder: Path, *, has_accounting: bool = True, min_job_age_s: int = 300) -> Iterator[SlurmCluster]:
    """A context with a running cluster."""
    cluster = SlurmCluster(folder, has_accounting=has_accounting, min_job_age_s=min_job_age_s)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
