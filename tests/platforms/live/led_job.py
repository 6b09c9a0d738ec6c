"""A trial that does what it is told, over HTTP: ``python3 led_job.py URL``, or, without a URL, by files in the folder
``led`` beside its own. Any Python 3.7; runs on the real service."""

import json
import os
import sys
import time
import urllib.request
import uuid

_PATIENCE_S = 60
_PAUSE_S = 0.1


class Web:
    """Each question brings the answer to the last order along."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._run = uuid.uuid4().hex
        self._answer = None

    def ask(self) -> str:
        """The next order; empty when there is none yet."""
        body = json.dumps({"run": self._run, "answer": self._answer}).encode()
        request = urllib.request.Request(self._url, body)
        with urllib.request.urlopen(request, timeout=_PATIENCE_S) as response:
            self._answer = None
            return response.read().decode()  # type: ignore[no-any-return]

    def answer(self, answer: object) -> None:
        self._answer = answer  # type: ignore[assignment]


class Files:
    """``order-N`` is answered by ``answer-N``."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._number = ""
        os.makedirs(folder, exist_ok=True)

    def ask(self) -> str:
        """The next order; empty when there is none yet."""
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
        with open(os.environ["NNI_OUTBOX"], "a") as outbox:
            outbox.write(text + "\n")
    elif verb == "environment":
        return dict(os.environ)
    elif verb == "show":
        with open(text, encoding="utf-8") as file:
            return file.read()
    return "done"


if __name__ == "__main__":
    sys.exit(main("".join(sys.argv[1:])))
