"""Simulated machines, as root: each with a network, processes, a home folder, a noexec /tmp and a real sshd.

Tests control the network and the power: they cut a link, drop packets or switch a machine off, and undo that.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import asyncssh
import psutil

#: Number in addresses and interface names; leftovers of a killed run with the same names are replaced.
_NETWORK = 83
_NOWHERE = "02:00:00:00:00:99"
_START_S = 20.0


class NamespacedMachine:
    """`number`: from 1."""

    def __init__(self, number: int, folder: Path, settings: str, network: int) -> None:
        self.name = f"machine{number}"
        self.address = f"{_prefix(network)}.{10 + number}"
        self.folder = folder
        self.home = folder / "home"
        self._manager, self._bridge = f"{_prefix(network)}.1", _bridge(network)
        self._namespace = f"nnitest{network}n{number}"
        self._wire = f"nnitest{network}v{number}"
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self.host_key = asyncssh.generate_private_key("ssh-ed25519")
        self.key_file = folder / "key"

    def entry(self, **fields: Any) -> dict[str, Any]:
        """Its entry in `machineList`."""
        known = {"host": self.address, "user": "root", "sshKeyFile": str(self.key_file)}
        return {**known, "hostKey": self.host_key.get_fingerprint(), **fields}

    def make(self) -> None:
        """Create its folders, keys and network link."""
        for name in ("home", "tmp"):
            (self.folder / name).mkdir(parents=True)
        key = asyncssh.generate_private_key("ssh-ed25519")
        key.write_private_key(str(self.key_file))
        self.host_key.write_private_key(str(self.folder / "host_key"))
        for path in (self.key_file, self.folder / "host_key"):
            path.chmod(0o600)
        key.write_public_key(str(self.folder / "authorized_keys"))
        (self.folder / "sshd_config").write_text(
            f"Port 22\nHostKey {self.folder}/host_key\nPidFile none\n"
            f"AuthorizedKeysFile {self.folder}/authorized_keys\nPermitRootLogin prohibit-password\n"
            f"PasswordAuthentication no\nUsePAM no\nStrictModes no\nSetEnv HOME={self.home}\n{self._settings}\n"
        )
        _ip("netns", "add", self._namespace)
        _ip("link", "add", self._wire, "type", "veth", "peer", "name", "eth0", "netns", self._namespace)
        _ip("link", "set", self._wire, "master", self._bridge, "up")
        _ip("-n", self._namespace, "addr", "add", f"{self.address}/24", "dev", "eth0")
        for link in ("eth0", "lo"):
            _ip("-n", self._namespace, "link", "set", link, "up")

    def on(self) -> None:
        """Switch it on: its sshd starts, its files are unchanged."""
        test = self.folder.parents[1]  # it may be below /tmp, and the machine has its own /tmp
        script = (
            f"cd {test} && mount --make-rprivate / &&{self._packages()} mount --rbind {self.folder}/tmp /tmp &&"
            " mount -o remount,bind,noexec /tmp &&"
            f" mkdir -p {test} && mount --no-canonicalize --bind . {test} && hostname {self.name} && cd / &&"
            f" exec {shutil.which('sshd')} -D -f {self.folder}/sshd_config -E {self.folder}/sshd.log"
        )
        unshare = ["unshare", "--mount", "--pid", "--uts", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script]
        self._process = subprocess.Popen(
            ["ip", "netns", "exec", self._namespace, *unshare], stdin=subprocess.DEVNULL, start_new_session=True
        )
        deadline = time.monotonic() + _START_S
        while not self._answers():
            assert time.monotonic() < deadline and self._process.poll() is None, f"{self.name} does not start"
            time.sleep(0.05)

    def _packages(self) -> str:
        """Commands that mount this Python's packages into the machine's own /tmp, if they are below /tmp."""
        if not Path(sys.prefix).is_relative_to("/tmp"):
            return ""
        there = f"{self.folder}{sys.prefix}"
        return f" mkdir -p {there} && mount --bind {sys.prefix} {there} &&"

    def off(self) -> None:
        """Switch it off: all its processes end at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        for process in self.processes():
            with suppress(psutil.Error):
                process.wait(_START_S)

    def kill_sshd(self) -> None:
        """Restart its sshd, which ends all sessions. Background processes of users continue."""
        for process in self.processes():
            with suppress(psutil.Error):
                if process.name().startswith("sshd") and process.ppid() != self._first_pid:
                    process.kill()

    def keepers(self) -> list[psutil.Process]:
        """Its keepers; during a start or an end, zero or several."""
        found = []
        for process in self.users_processes():
            with suppress(psutil.Error):
                if "serve" in process.cmdline():
                    found.append(process)
        return found

    def kill_keeper(self) -> None:
        for process in self.keepers():
            with suppress(psutil.Error):
                process.kill()

    def cut(self) -> None:
        """Take the link down: no route, no reset."""
        _ip("link", "set", self._wire, "down")

    def drop(self) -> None:
        """Drop packets in both directions."""
        _ip("neigh", "replace", self.address, "lladdr", _NOWHERE, "dev", self._bridge, "nud", "permanent")
        _ip("-n", self._namespace, "route", "replace", "blackhole", f"{self._manager}/32")

    def heal(self) -> None:
        _ip("link", "set", self._wire, "up")
        for words in (["neigh", "del", self.address, "dev", self._bridge],):
            subprocess.run(["ip", *words], check=False, capture_output=True)
        blackhole = ["ip", "-n", self._namespace, "route", "del", "blackhole", f"{self._manager}/32"]
        subprocess.run(blackhole, check=False, capture_output=True)

    def processes(self) -> list[psutil.Process]:
        """All processes of its namespace except the first."""
        if self._process is None:
            return []
        return psutil.Process(self._process.pid).children(recursive=True)

    def users_processes(self) -> list[psutil.Process]:
        """Its processes that are not servers."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get("HOME") == str(self.home):
                    found.append(process)
        return found

    def users_commands(self) -> list[str]:
        """Command lines of `users_processes` that are still alive."""
        found = []
        for process in self.users_processes():
            with suppress(psutil.Error):
                found.append(" ".join(process.cmdline()))
        return found

    @property
    def _first_pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def remove(self) -> None:
        self.off()
        subprocess.run(["ip", "link", "del", self._wire], check=False, capture_output=True)
        subprocess.run(["ip", "netns", "del", self._namespace], check=False, capture_output=True)

    def _answers(self) -> bool:
        with socket.socket() as sock:
            sock.settimeout(1)
            return sock.connect_ex((self.address, 22)) == 0


@contextmanager
def namespaced_machines(
    count: int, folder: Path, settings: str = "MaxSessions 1\nAllowTcpForwarding no", network: int = _NETWORK
) -> Iterator[list[NamespacedMachine]]:
    """Machines that are switched on. `settings`: further lines of sshd_config; `network`: below 256, unique per run."""
    numbers = range(1, count + 1)
    machines = [NamespacedMachine(number, folder / f"machine{number}", settings, network) for number in numbers]
    bridge = _bridge(network)
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    for machine in machines:
        machine.remove()
    subprocess.run(["ip", "link", "del", bridge], check=False, capture_output=True)
    _ip("link", "add", bridge, "type", "bridge")
    try:
        _ip("addr", "add", f"{_prefix(network)}.1/24", "dev", bridge)
        _ip("link", "set", bridge, "up")
        for machine in machines:
            machine.make()
            machine.on()
        yield machines
    finally:
        for machine in machines:
            machine.remove()
        subprocess.run(["ip", "link", "del", bridge], check=False, capture_output=True)


def _prefix(network: int) -> str:
    return f"10.219.{network}"


def _bridge(network: int) -> str:
    return f"nnitest{network}br"


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
