"""Duration of GET requests on one kept-alive connection, sent by a separate process.

`python -m tests.benchmarks.latency PORT PATH COUNT EVERY_S` sends COUNT requests (0: until its input ends) every
EVERY_S seconds (0: without pause), and prints the milliseconds until the last byte of each answer as a JSON list.
"""

from __future__ import annotations

import json
import os
import select
import socket
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass

_WARM_UP = 3


@dataclass(frozen=True, slots=True)
class Latencies:
    milliseconds: list[float]

    @property
    def p50(self) -> float:
        return statistics.median(self.milliseconds)

    @property
    def p98(self) -> float:
        return sorted(self.milliseconds)[int(0.98 * (len(self.milliseconds) - 1) + 0.5)]


class Reader:
    """Sends requests in the background inside its `with` block; then `latencies` has the result."""

    def __init__(self, port: int, path: str, *, count: int = 0, every_s: float = 0) -> None:
        self._command = [sys.executable, "-m", "tests.benchmarks.latency", str(port), path, str(count), str(every_s)]
        self.latencies = Latencies([])

    def __enter__(self) -> Reader:
        environment = {**os.environ, "PYTHONPATH": os.getcwd()}
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        return self

    def __exit__(self, *_: object) -> None:
        output, _ignored = self._process.communicate()
        assert self._process.returncode == 0, self._command
        self.latencies = Latencies(json.loads(output))


def measure(port: int, path: str, count: int, every_s: float = 0) -> Latencies:
    with Reader(port, path, count=count, every_s=every_s) as reader:
        pass  # it exits on its own
    return reader.latencies


class _Connection:
    """A minimal HTTP client, so that the servers dominate the measurement."""

    def __init__(self, port: int, path: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAccept: */*\r\n\r\n".encode()
        self._buffer = bytearray(1 << 20)

    def ask(self) -> int:
        """Bytes of the answer's body. Raises AssertionError unless it is 200 and of a stated length."""
        self._socket.sendall(self._request)
        count = self._socket.recv_into(self._buffer)
        end = self._buffer.find(b"\r\n\r\n", 0, count)
        assert end >= 0 and self._buffer[9:12] == b"200", bytes(self._buffer[:count])
        head = bytes(self._buffer[:end]).lower()
        assert b"content-length: " in head, head
        length = int(head.partition(b"content-length: ")[2].split(b"\r\n")[0])
        left = length - (count - end - 4)
        while left > 0:
            left -= self._socket.recv_into(self._buffer)
        return length


def _main(port: int, path: str, count: int, every_s: float) -> None:
    connection = _Connection(port, path)
    for _ in range(_WARM_UP):
        connection.ask()
    found: list[float] = []
    begin = time.perf_counter()
    while len(found) < count or not count:
        pause = begin + every_s * len(found) - time.perf_counter() if every_s else 0
        if not count and select.select([sys.stdin], [], [], max(0.0, pause))[0]:
            break
        if count and pause > 0:
            time.sleep(pause)
        started = time.perf_counter()
        connection.ask()
        found.append((time.perf_counter() - started) * 1000)
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    _main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
