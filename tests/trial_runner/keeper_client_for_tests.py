"""A keeper in a process of its own, and a blocking client of it. Every wait is for an event and bounded."""

import base64
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.fork_server.popen import Popen
from trial_runner import protocol
from trial_runner.wire import removal

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 20.0

Message = dict[str, Any]


class Client:
    """One connection."""

    def __init__(self, path: str | Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(TIMEOUT_S)
        try:
            self.socket.connect(str(path))
        except OSError:
            self.socket.close()
            raise
        self._decoder = protocol.Decoder()
        self._messages: list[Message] = []
        self._count = 0

    def send(self, verb: str, **arguments: Any) -> int:
        self.send_at_once((verb, arguments))
        return self._count

    def send_at_once(self, *requests: "tuple[str, Message]") -> None:
        """Verbs with their arguments in one piece, so that nothing happens between them."""
        pieces = []
        for verb, arguments in requests:
            self._count += 1
            pieces.append(protocol.encode({"verb": verb, "id": self._count, **arguments}))
        self.socket.sendall(b"".join(pieces))

    def next_message(self) -> Message:
        while not self._messages:
            data = self.socket.recv(1 << 20)
            if not data:
                raise EOFError("the keeper hung up")
            self._messages += self._decoder.feed(data)
        return self._messages.pop(0)

    def ask(self, verb: str, **arguments: Any) -> Any:
        """The result; events that come before it stay in line. Raises RefusedError."""
        number = self.send(verb, **arguments)
        others = []
        while (message := self.next_message()).get("id") != number:
            others.append(message)
        self._messages = others + self._messages
        if "error" in message:
            raise RefusedError(message["error"]["kind"], message["error"]["message"])
        return message["result"]

    def until_ended(self, *names: str) -> "Heard":
        heard = Heard()
        while set(names) - heard.jobs.keys():
            heard.add(self.next_message())
        return heard

    def until_lines(self, name: str, count: int) -> "Heard":
        heard = Heard()
        while len(heard.lines(name)) < count:
            heard.add(self.next_message())
        return heard

    def close(self) -> None:
        self.socket.close()


class RefusedError(Exception):
    @property
    def kind(self) -> str:
        return str(self.args[0])

    @property
    def message(self) -> str:
        return str(self.args[1])


class Heard:
    """What events told; offsets are checked to leave no gap."""

    def __init__(self) -> None:
        self.jobs: dict[str, Message] = {}
        self.outboxes: dict[tuple[str, str], list[str]] = {}
        self.offsets: dict[tuple[str, str], int] = {}
        self.chunks = 0

    def add(self, message: Message) -> None:
        if message.get("event") == "ended":
            self.jobs[message["name"]] = message["job"]
        if message.get("event") != "lines":
            return
        key = message["name"], message["outbox"]
        assert message["name"] not in self.jobs, "lines after the end"
        assert self.offsets.get(key, message["start"]) == message["start"], "a gap or a repeat"
        self.offsets[key] = message["end"]
        self.outboxes.setdefault(key, []).extend(message["lines"])
        self.chunks += 1

    def lines(self, name: str, outbox: str = protocol.MAIN_OUTBOX) -> list[str]:
        return self.outboxes.get((name, outbox), [])


class KeeperProcess:
    """A keeper's directory, its process and its clients."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.socket_path = directory / "keeper.sock"
        self.process: subprocess.Popen[bytes] | None = None
        self._clients: list[Client] = []

    def start(self, *prefix: str) -> bytes:
        """What it wrote when it was ready; nothing when it ended before."""
        reader, writer = os.pipe()
        command = [*(prefix or (sys.executable, "-m", "trial_runner.keeper")), "serve", "--directory"]
        command += [str(self.directory / "keeper"), "--socket", str(self.socket_path), "--ready-fd", str(writer)]
        log = (self.directory / "keeper.err").open("ab")
        careless = os.open(os.devnull, os.O_RDONLY)
        self.process = Popen(
            command, cwd=ROOT, pass_fds=(writer, careless), start_new_session=True, stdin=subprocess.DEVNULL, stderr=log
        )
        log.close()
        os.close(careless)
        os.close(writer)
        with os.fdopen(reader, "rb") as ready:
            return ready.read()

    def connect(self) -> Client:
        self._clients.append(Client(self.socket_path))
        return self._clients[-1]

    def kill(self, number: int = signal.SIGKILL) -> int:
        """Its return code."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        assert self.process is not None
        return self.process.wait(TIMEOUT_S)

    def attempt(self, name: str) -> Path:
        return self.directory / "attempts" / name

    def spawn(self, client: Client, name: str, command: str, **more: Any) -> Message:
        return client.ask("spawn", **self.request(name, command, **more))

    def request(self, name: str, command: str, environment: dict[str, str] | None = None, **more: Any) -> Message:
        attempt = self.attempt(name)
        variables = {"PATH": os.environ["PATH"], "D": str(attempt), "PYTHON": sys.executable, **(environment or {})}
        return {
            "name": name,
            "owner": "tests",
            "command": command,
            "environment": {**variables, "NNI_OUTBOX": str(attempt / protocol.MAIN_OUTBOX)},
            "directory": str(self.directory),
            "attempt_directory": str(attempt),
            "files": {},
            "grace_s": 20,
            **more,
        }

    def state_file(self, name: str) -> Path:
        return self.directory / "keeper" / "jobs" / f"{name}.jsonl"

    def log(self) -> str:
        return (self.directory / "keeper" / "keeper.log").read_text()

    def read(self, client: Client, name: str, file: str, **more: Any) -> bytes:
        found = client.ask("read", attempt_directory=str(self.attempt(name)), file=file, **more)
        return base64.b64decode(found["data"])

    def clean_up(self) -> None:
        """Ends every job, wherever it got to, and the keeper."""
        for client in self._clients:
            client.close()
        deadline = time.monotonic() + TIMEOUT_S
        while not self._has_ended_jobs():
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.02)
        self.kill(signal.SIGTERM)

    def _has_ended_jobs(self) -> bool:
        """Not while a keeper that another one started is just ending: it answers nothing, and no other can begin."""
        if self.process is None or self.process.poll() is not None:
            self.start()
        try:
            self._end_jobs(self.connect())
        except (OSError, EOFError):
            return False
        return True

    def _end_jobs(self, client: Client) -> None:
        running = [job["name"] for job in client.ask("list")["jobs"].values() if job["state"] == protocol.RUNNING]
        client.ask("follow", jobs={name: {} for name in running})
        for name in running:
            client.send("signal", name=name, grace_s=0)
        client.until_ended(*running)
        client.close()


@contextmanager
def keeper_directory() -> Iterator[KeeperProcess]:
    """A keeper that is not started yet, in a folder with a name short enough for a socket."""
    directory = Path(tempfile.mkdtemp(prefix="keeper-"))
    keeper = KeeperProcess(directory)
    try:
        yield keeper
    finally:
        keeper.clean_up()
        assert removal.remove(str(directory)) == []


def lasting(job: Message) -> Message:
    """What stays the same of a job's description while time passes."""
    return {name: value for name, value in job.items() if not name.endswith("_ago_ms")}


def claim_of(keeper: KeeperProcess, name: str) -> Message:
    return json.loads(keeper.state_file(name).read_text().splitlines()[0])


def is_alive(pid: int) -> bool:
    """A zombie is not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"
