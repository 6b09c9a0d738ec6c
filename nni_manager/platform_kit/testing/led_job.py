"""A trial that executes orders, over HTTP: ``python3 led_job.py URL``; or, without a URL, from files in the folder
``led`` next to its own. Any Python 3.7; runs on the real service."""

import json
import os
import socket
import sys
import time

_PATIENCE_S = 60
_PAUSE_S = 0.1


class Web:
    """Each request carries the answer to the last order. Python's own client takes longer to import than the rest of a
    trial."""

    def __init__(self, url: str) -> None:
        address, _, self._path = url.partition("://")[2].partition("/")
        host, _, port = address.rpartition(":")
        self._address = host.strip("[]"), int(port)
        self._run = os.urandom(16).hex()
        self._answer: object = None

    def ask(self) -> str:
        """The next order; empty: none yet. Raises OSError without a complete answer."""
        body = json.dumps({"run": self._run, "answer": self._answer}).encode()
        head = f"POST /{self._path} HTTP/1.0\r\nContent-Length: {len(body)}\r\n\r\n"
        with socket.create_connection(self._address, _PATIENCE_S) as connection:
            connection.sendall(head.encode() + body)
            told = b"".join(iter(lambda: connection.recv(65536), b""))
        status, _, text = told.partition(b"\r\n\r\n")
        if not status.startswith(b"HTTP/1.1 200 "):
            raise OSError(f"no answer: {told[:100]!r}")
        self._answer = None
        return text.decode()

    def answer(self, answer: object) -> None:
        self._answer = answer


class Files:
    """``answer-N`` answers ``order-N``."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._number = ""
        os.makedirs(folder, exist_ok=True)

    def ask(self) -> str:
        """The next order; empty: none yet."""
        for name in sorted(os.listdir(self._folder)):
            kind, _, number = name.partition("-")
            if kind == "order":
                self._number = number
                with open(os.path.join(self._folder, name), encoding="utf-8") as file:
                    order = file.read()
                os.rename(os.path.join(self._folder, name), os.path.join(self._folder, "taken-" + number))
                return order
        return ""

    def answer(self, answer: object) -> None:
        path = os.path.join(self._folder, "half-" + self._number)
        with open(path, "w", encoding="utf-8") as file:
            json.dump(answer, file)
        os.rename(path, os.path.join(self._folder, "answer-" + self._number))


def main(url: str) -> int:
    orders = Web(url) if url else Files(os.path.join(os.environ["NNI_SYS_DIR"], "led"))
    while True:
        verb, _, text = orders.ask().partition(" ")
        if not verb:
            time.sleep(_PAUSE_S)
        elif verb == "exit":
            if text != "0":
                sys.stderr.write("it broke\n")
            orders.answer("done")
            return int(text)
        else:
            orders.answer(_do(verb, text))


def _do(verb: str, text: str) -> object:
    if verb == "print":
        print(text, flush=True)
    elif verb == "report":
        with open(os.environ["NNI_OUTBOX"], "a", encoding="utf-8") as outbox:
            outbox.write(text + "\n")
    elif verb == "environment":
        return dict(os.environ)
    elif verb == "show":
        with open(text, encoding="utf-8") as file:
            return file.read()
    return "done"


if __name__ == "__main__":
    sys.exit(main("".join(sys.argv[1:])))
