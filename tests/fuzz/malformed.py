"""Malformed bytes instead of HTTP: the answer is HTTP or nothing, arrives at once, and reveals nothing."""

from __future__ import annotations

import random
import socket
import time

from tests.fuzz.report import LONGEST_S, Report
from tests.fuzz.target import Target

_GET = b"GET /api/v1/experiments HTTP/1.1\r\nHost: localhost\r\n"
_POST = b"POST /api/v1/experiments HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"

#: Complete conversations.
CONVERSATIONS = [
    b"\r\n\r\n",
    b"\0" * 64,
    b"GET\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET / HTTP/1.1\r\n\r\n",
    b"get / http/1.1\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"HELO there\r\n",
    _GET + b"Host: evil.example\r\n\r\n",
    _GET + b"\r\n" + b"garbage instead of a request\r\n\r\n",
    _GET + b"\r\n" + _GET + b"\r\n" + b"\xff\xfe\0\r\n\r\n",
    _GET + b"Bad Header: x\r\n\r\n",
    _GET + b": x\r\n\r\n",
    _GET + b"X: a\0b\r\n\r\n",
    _GET + b"X: " + b"a" * 200_000 + b"\r\n\r\n",
    _GET + b"X: y\r\n" * 20_000 + b"\r\n",
    _GET + b"Content-Length: -1\r\n\r\n",
    _GET + b"Content-Length: 1e3\r\n\r\n",
    _GET + b"Content-Length: 99\r\n\r\n",
    _POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n{}{}{}",
    _POST + b"Content-Length: 99999999999999999999\r\n\r\n",
    _POST + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{}",
    _POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
    _POST + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\n",
    _POST + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nabc",
    _POST + b"Transfer-Encoding: gzip\r\n\r\nabc",
    _POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}X\r\n0\r\n\r\n",
    _POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{",
    _POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nHost: x\r\nX: " + b"t" * 100_000 + b"\r\n\r\n",
    _POST + b"Content-Length: 3\r\n\r\n\xff\xfe\xfd",
    _POST + b"Content-Length: 4\r\nExpect: 200-maybe\r\n\r\n{}{}",
    _POST + b"Content-Length: 2\r\nContent-Encoding: gzip\r\n\r\n{}",
    _GET + b"Upgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n",
    b"GET http://[::1 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET //evil.example/ HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /%zz%%% HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /api/v1/experiments/%ff%fe HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET * HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"CONNECT localhost:22 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"TRACE / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: local host\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: \xff\r\n\r\n",
    b"GET /?token=%ff%00 HTTP/1.1\r\nHost: localhost\r\nCookie: \xff=\x01;;;=\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer \xff\xfe\r\n\r\n",
]


def shoot(target: Target, calls: int, seed: int, group: str = "malformed") -> Report:
    """The conversations above, followed by changed, truncated and combined ones."""
    report, chance = Report(group), random.Random(seed)
    for number in range(calls):
        data = CONVERSATIONS[number] if number < len(CONVERSATIONS) else _mangled(chance)
        report_one(target.address, data, report)
    return report


def report_one(address: tuple[str, int], data: bytes, report: Report) -> None:
    """Send the bytes, close the sending side, and read the answer."""
    shown, began = repr(data[:300]), time.perf_counter()
    try:
        answer = converse(address, data)
    except TimeoutError:
        report.complain("no end", shown)
        return
    status = int(answer[9:12]) if answer.startswith(b"HTTP/1.") and answer[9:12].isdigit() else 0
    if answer and not status:
        report.complain("no HTTP", f"{shown} → {answer[:200]!r}")
    report.take(shown, status, answer.decode("latin-1"), time.perf_counter() - began)


def converse(address: tuple[str, int], data: bytes) -> bytes:
    """The whole answer until the connection ends. Raises TimeoutError."""
    parts = []
    with socket.create_connection(address, LONGEST_S) as connection:
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            while part := connection.recv(1 << 16):
                parts.append(part)
        except (ConnectionError, OSError) as error:
            if isinstance(error, TimeoutError):
                raise
    return b"".join(parts)


def _mangled(chance: random.Random) -> bytes:
    data = bytearray(chance.choice(CONVERSATIONS)[:5_000])
    for _ in range(chance.randrange(1, 6)):
        place = chance.randrange(len(data) + 1)
        match chance.randrange(4):
            case 0:
                data[place:place] = chance.randbytes(chance.randrange(1, 9))
            case 1:
                del data[place : place + chance.randrange(1, 20)]
            case 2:
                data[place:place] = chance.choice([b"\r\n", b"\n", b"\0", b"%00", b"..%2f", b":", b" ", b"\r\n\r\n"])
            case _:
                data += chance.choice(CONVERSATIONS)[:2_000]
    return bytes(data)
