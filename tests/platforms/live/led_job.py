"""A trial that does what it is told over HTTP: ``python3 led_job.py URL``. Any Python 3.7; runs on the real service."""

import json
import os
import sys
import time
import urllib.request
import uuid

_PATIENCE_S = 60
_PAUSE_S = 0.1


def main(url: str) -> int:
    run, answer = uuid.uuid4().hex, None
    while True:
        order = _ask(url, {"run": run, "answer": answer})
        verb, _, text = order.partition(" ")
        if verb == "exit":
            if text != "0":
                sys.stderr.write("it broke\n")
            return int(text)
        answer = _do(verb, text)
        if not verb:
            time.sleep(_PAUSE_S)


def _ask(url: str, body: dict) -> str:  # type: ignore[type-arg]
    """The next order; empty when there is none yet."""
    request = urllib.request.Request(url, json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=_PATIENCE_S) as response:
        return response.read().decode()  # type: ignore[no-any-return]


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
    return "done" if verb else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
