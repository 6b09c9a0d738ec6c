"""A client of the daemon with time limits, which remembers the results that it has seen."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.live_daemon import Daemon

#: Maximum seconds of a call; a stop may also use its trials' grace period.
BOUND_S = 10.0
STOP_BOUND_S = 30.0
#: Part of the message about a destroyed database, which names the file.
_UNREADABLE = "cannot be read"
#: Maximum length of a list; no schedule creates that many trials or results.
_ALL = 10_000

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Result:
    trial: str
    attempt: int
    type: str
    value: str


@dataclass(slots=True)
class Answer:
    """`code`: 0 without an answer: no daemon runs, or it ended."""

    code: int
    text: str

    @property
    def is_success(self) -> bool:
        return 200 <= self.code < 300

    @property
    def body(self) -> Any:
        return json.loads(self.text) if self.is_success and self.text else None


@dataclass(slots=True)
class Witness:
    """`complain`: receives hanging calls and internal errors."""

    daemon: Daemon
    experiment: str
    complaints: list[str] = field(default_factory=list)
    acknowledged: set[Result] = field(default_factory=set)

    def ask(self, method: str, path: str, bound_s: float = BOUND_S) -> Answer:
        begun_s = time.monotonic()
        try:
            socket = json.loads((self.daemon.data / "control.json").read_text())["socket"]
            transport = httpx.HTTPTransport(uds=socket, verify=False)
            with httpx.Client(transport=transport, base_url="http://manager", timeout=bound_s) as client:
                answer = client.request(method, f"/api/v1{path}")
        except httpx.TimeoutException:
            self.complaints.append(f"{method} {path} was not answered within {bound_s:.0f} s")
            return Answer(0, "")
        except (OSError, httpx.HTTPError, ValueError) as error:
            return Answer(0, str(error))
        if (took_s := time.monotonic() - begun_s) > bound_s:
            self.complaints.append(f"{method} {path} took {took_s:.0f} s")
        is_explained = _UNREADABLE in answer.text and ".sqlite" in answer.text
        if answer.status_code == httpx.codes.INTERNAL_SERVER_ERROR and not is_explained:
            self.complaints.append(f"{method} {path} answered 500: {answer.text[:300]}")
        return Answer(answer.status_code, answer.text)

    def look(self) -> None:
        """Read everything that a user sees."""
        for path in ("/experiments", self._path, f"{self._path}/trials"):
            self.ask("GET", path)

    def acknowledge(self) -> None:
        """Remember the currently visible results."""
        self.acknowledged |= self.results() or set()

    def results(self) -> set[Result] | None:
        """None: they cannot be read now."""
        body = self.ask("GET", f"{self._path}/metrics?limit={_ALL}").body
        if body is None:
            return None
        return {Result(one["trialId"], one["attempt"], one["type"], one["result"]) for one in body["metrics"]}

    def status(self) -> Json | None:
        body = self.ask("GET", self._path).body
        return body if isinstance(body, dict) else None

    def trials(self) -> list[Json] | None:
        body = self.ask("GET", f"{self._path}/trials?limit={_ALL}").body
        return list(body["trials"]) if body is not None else None

    def is_listed(self) -> bool:
        body = self.ask("GET", "/experiments").body
        return body is not None and any(one["id"] == self.experiment for one in body["experiments"])

    @property
    def _path(self) -> str:
        return f"/experiments/{self.experiment}"


def words_of(daemon: Daemon) -> str:
    """Warnings and errors in the daemon's log since the experiment started."""
    lines = Path(daemon.data.parent / "daemon.log").read_text(errors="replace").splitlines()
    return "\n".join(line for line in lines if " WARNING " in line or " ERROR " in line)
