"""Post results as fast as they are accepted, as a separate process: ``python runner_flood.py COUNT ENV_FILE…``.

COUNT results for each attempt (one environment file each), each over its own connection. Prints one JSON object: the
number of postponed posts, and the duration in seconds.
"""

from __future__ import annotations

import http.client
import json
import sys
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

from trial_runner import protocol

BATCH = 6_000


def environment(path: Path) -> dict[str, str]:
    """As `start.env` has it."""
    return dict(line.split("=", 1) for line in path.read_text().splitlines())


class Runner:
    """One attempt that only posts results."""

    def __init__(self, variables: dict[str, str]) -> None:
        parts = urlsplit(variables["NNI_MANAGER_URL"])
        self._path = parts.path
        self._headers = {"Authorization": f"Bearer {variables['NNI_TRIAL_TOKEN']}", "Content-Type": "application/json"}
        self._connection = http.client.HTTPConnection(parts.netloc, timeout=30)
        self.put_off = 0

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def post(self, route: str, body: object) -> tuple[int, dict[str, object]]:
        """Post until the result is accepted or permanently refused."""
        data = json.dumps(body).encode()
        while True:
            self._connection.request("POST", f"{self._path}/{route}", data, self._headers)
            response = self._connection.getresponse()
            answer = json.loads(response.read())
            if response.status != 429:
                return response.status, answer
            self.put_off += 1
            time.sleep(float(response.headers["Retry-After"]) / 4)

    def register(self) -> None:
        assert self.post("version", {"version": protocol.VERSION, "channel": "push"})[0] == 200

    def flood(self, count: int) -> None:
        with self:
            self._flood(count)

    def _flood(self, count: int) -> None:
        self.register()
        start = 0
        for first in range(0, count, BATCH):
            numbers = range(first, min(count, first + BATCH))
            lines = [json.dumps({"type": "intermediate", "value": number}) for number in numbers]
            end = start + sum(len(line) + 1 for line in lines)
            body = {"outbox": "outbox/main.jsonl", "start": start, "end": end, "lines": lines}
            status, answer = self.post("metrics", body)
            assert (status, answer) == (200, {"offset": end}), (status, answer)
            start = end


def main(count: int, files: list[str]) -> None:
    runners = [Runner(environment(Path(file))) for file in files]
    began = time.monotonic()
    threads = [threading.Thread(target=runner.flood, args=(count,)) for runner in runners]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps({"putOff": sum(runner.put_off for runner in runners), "seconds": time.monotonic() - began}))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
