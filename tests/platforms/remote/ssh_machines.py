"""Machines with an SSH server on loopback, in this process or a real sshd, each with a home folder of its own."""

from __future__ import annotations

import abc
import asyncio
import getpass
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import asyncssh
import psutil

from tests.app.foreign_port import free_port

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
PASSWORD = "pass-w0rd-of-the-machine"
#: Turns of the loop in which a connection that was accepted is made, and one that was aborted is closed.
_TURNS = 10


class SshMachine(abc.ABC):
    """`directory`: empty, its own. Started and stopped any number of times, always at the same port."""

    def __init__(self, directory: Path) -> None:
        self.home = directory / "home"
        self.home.mkdir(parents=True)
        self.directory = directory
        self.address = "127.0.0.1"
        self.port = free_port()
        self.user = getpass.getuser()
        self.host_key = asyncssh.generate_private_key("ssh-ed25519")
        #: How many were let in.
        self.logins = 0
        #: More variables of its sessions.
        self.environment: dict[str, str] = {}

    @property
    def fingerprint(self) -> str:
        return self.host_key.get_fingerprint()

    def entry(self, **fields: Any) -> dict[str, Any]:
        """Of `machineList`."""
        known = {"host": self.address, "port": self.port, "user": self.user, "hostKey": self.fingerprint}
        return {**known, **self.credentials(), **fields}

    @abc.abstractmethod
    def credentials(self) -> dict[str, Any]:
        """Good ones."""

    @abc.abstractmethod
    async def start(self) -> None:
        """It accepts connections."""

    @abc.abstractmethod
    async def stop(self) -> None:
        """Whatever is connected is not any more; what was started in the background runs on."""


class InProcessMachine(SshMachine):
    """asyncssh's own server. `shell`: what runs commands, as a login shell does."""

    def __init__(self, directory: Path, shell: str = "/bin/sh") -> None:
        super().__init__(directory)
        self.shell = shell
        self.most_sessions = 1
        #: Public keys that are accepted in addition to the password.
        self.keys: list[asyncssh.SSHKey] = []
        self.asks_for_password_by_prompt = False
        self.refused_logins = 0
        #: It refuses everybody, as one that is starting does.
        self.is_locked = False
        #: How long its server takes over a user, as a slow directory of users does.
        self.login_takes_s = 0.0
        #: Further keys of its host, and a certificate of the first one.
        self.more_host_keys: list[asyncssh.SSHKey] = []
        self.host_certificate: asyncssh.SSHCertificate | None = None
        #: What its server calls itself.
        self.server = ""
        self._connections: set[asyncssh.SSHServerConnection] = set()
        self._acceptor: asyncssh.SSHAcceptor | None = None
        self._listening: socket.socket
        self._serving: set[asyncio.Task[Any]] = set()

    def credentials(self) -> dict[str, Any]:
        return {"password": PASSWORD}

    async def start(self) -> None:
        self._listening = socket.create_server((self.address, self.port))
        self._acceptor = await asyncssh.listen(
            sock=self._listening,
            server_factory=lambda: _Server(self),
            server_host_keys=[(self.host_key, self.host_certificate), *self.more_host_keys],
            process_factory=self._serve,
            encoding=None,
            allow_scp=False,
            server_version=self.server,
        )

    async def stop(self) -> None:
        if self._acceptor is not None:
            # before the server closes: asyncio would leave accepted sockets open that are not connections yet
            asyncio.get_running_loop().remove_reader(self._listening)
            await self._abort_all()
            self._acceptor.close()
            await self._acceptor.wait_closed()
            self._acceptor = None
            await asyncio.gather(*self._serving, return_exceptions=True)

    async def _abort_all(self) -> None:
        for _ in range(_TURNS):  # what was accepted is a connection some turns later
            for connection in tuple(self._connections):
                connection.abort()
            await asyncio.sleep(0)

    async def _serve(self, process: asyncssh.SSHServerProcess[bytes]) -> None:
        serving = asyncio.current_task()
        assert process.command is not None and serving is not None
        self._serving.add(serving)
        serving.add_done_callback(self._serving.discard)
        variables = {"PATH": os.environ["PATH"], "HOME": str(self.home), "SSH_CLIENT": "somewhere", **self.environment}
        child = await asyncio.create_subprocess_exec(
            self.shell,
            "-c",
            process.command,
            env=variables,
            cwd=self.home,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        pumps = [
            asyncio.create_task(_pump(process.stdin.read, child.stdin)),
            asyncio.create_task(_pump(child.stdout.read, process.stdout)),
            asyncio.create_task(_pump(child.stderr.read, process.stderr)),
        ]
        status = await child.wait()
        await asyncio.wait(pumps[1:])
        pumps[0].cancel()
        await asyncio.wait(pumps)
        process.exit(status)


async def _pump(read: Any, sink: Any) -> None:
    """Until either end is gone; the sink hears of it."""
    with suppress(OSError, asyncssh.Error):
        while data := await read(65536):
            sink.write(data)
            await sink.drain()
    with suppress(OSError, asyncssh.Error):
        sink.write_eof()


class _Server(asyncssh.SSHServer):
    def __init__(self, machine: InProcessMachine) -> None:
        self._machine = machine
        self._sessions = 0
        self._connection: asyncssh.SSHServerConnection

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._connection = conn
        self._machine._connections.add(conn)

    def connection_lost(self, exc: Exception | None) -> None:
        self._machine._connections.discard(self._connection)

    async def begin_auth(self, username: str) -> bool:  # type: ignore[override]
        await asyncio.sleep(self._machine.login_takes_s)
        return True

    def auth_completed(self) -> None:
        self._machine.logins += 1

    def password_auth_supported(self) -> bool:
        return not self._machine.asks_for_password_by_prompt

    def validate_password(self, username: str, password: str) -> bool:
        return self._judge(username, password)

    def kbdint_auth_supported(self) -> bool:
        return self._machine.asks_for_password_by_prompt

    def get_kbdint_challenge(self, username: str, lang: str, submethods: str) -> Any:
        return "", "", "", [("Password: ", False)]

    def validate_kbdint_response(self, username: str, responses: Any) -> bool:
        return self._judge(username, *responses)

    def public_key_auth_supported(self) -> bool:
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        return username == self._machine.user and key in self._machine.keys

    def connection_requested(self, dest_host: str, dest_port: int, orig_host: str, orig_port: int) -> bool:
        return True  # as a jump host

    def session_requested(self) -> bool:
        """As `MaxSessions`."""
        self._sessions += 1
        return self._sessions <= self._machine.most_sessions

    def _judge(self, user: str, password: str) -> bool:
        is_right = (user, password) == (self._machine.user, PASSWORD) and not self._machine.is_locked
        self._machine.refused_logins += not is_right
        return is_right


class RealMachine(SshMachine):
    """OpenSSH's, with a key. `settings`: more lines of sshd_config."""

    def __init__(self, directory: Path, settings: tuple[str, ...] = ("MaxSessions 1", "AllowTcpForwarding no")) -> None:
        super().__init__(directory)
        self.settings = settings
        self.key_file = directory / "id_ed25519"
        self._process: subprocess.Popen[bytes] | None = None
        key = asyncssh.generate_private_key("ssh-ed25519")
        key.write_private_key(str(self.key_file))
        self.key_file.chmod(0o600)
        key.write_public_key(str(directory / "authorized_keys"))
        self.host_key.write_private_key(str(directory / "host_key"))
        (directory / "host_key").chmod(0o600)

    def credentials(self) -> dict[str, Any]:
        return {"sshKeyFile": str(self.key_file)}

    async def start(self) -> None:
        await asyncio.to_thread(self._start)
        async with asyncio.timeout(20):
            while not _listens(self.address, self.port):
                assert self._process is not None and self._process.poll() is None, self.log
                await asyncio.sleep(0.02)

    @property
    def log(self) -> str:
        return (self.directory / "sshd.log").read_text()

    def _start(self) -> None:
        assert SSHD is not None, "openssh-server is one of .ci/debian-packages"
        if os.getuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        variables = {"HOME": str(self.home), **self.environment}
        (self.directory / "sshd_config").write_text(
            "\n".join(
                [
                    f"Port {self.port}",
                    f"ListenAddress {self.address}",
                    f"HostKey {self.directory}/host_key",
                    "PidFile none",
                    f"AuthorizedKeysFile {self.directory}/authorized_keys",
                    "PermitRootLogin prohibit-password",
                    "PasswordAuthentication no",
                    "KbdInteractiveAuthentication no",
                    "UsePAM no",
                    "StrictModes no",
                    "SetEnv " + " ".join(f'{name}="{value}"' for name, value in variables.items()),
                    *self.settings,
                ]
            )
        )
        log = self.directory / "sshd.log"
        self._process = subprocess.Popen([SSHD, "-D", "-f", self.directory / "sshd_config", "-E", log])

    async def stop(self) -> None:
        """The server with all its sessions, at once; what its users started in the background lives."""
        if self._process is None:
            return
        server = psutil.Process(self._process.pid)
        server.suspend()  # no login meanwhile: its session would live on
        for process in [*server.children(recursive=True), server]:
            with suppress(psutil.Error):
                if process.name().startswith("sshd"):
                    process.kill()
        await asyncio.to_thread(self._process.wait)
        self._process = None

    @property
    def logins(self) -> int:  # type: ignore[override]
        return self.log.count("Accepted publickey")

    @logins.setter
    def logins(self, _: int) -> None:
        """As its log has it."""


def _listens(address: str, port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex((address, port)) == 0


@contextmanager
def home_of_manager(folder: Path) -> Iterator[Path]:
    """The user's own SSH configuration stays out of it."""
    before = {name: os.environ.get(name) for name in ("HOME", "SSH_AUTH_SOCK")}
    (folder / ".ssh").mkdir(mode=0o700, parents=True)
    os.environ["HOME"] = str(folder)
    os.environ.pop("SSH_AUTH_SOCK", None)
    try:
        yield folder
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
