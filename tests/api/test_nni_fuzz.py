"""Random requests to NNI's API: each is answered, never with 500, and a refusal is one sentence."""

from __future__ import annotations

import json
import random
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from nni_manager.api.nni import placeholder_process, trials
from tests.api.world import World

pytestmark = pytest.mark.unit

PATHS = (
    "version",
    "check-status",
    "experiment",
    "experiment/import-data",
    "experiment/imported-data",
    "experiment/cluster-metadata",
    "experiment-metadata",
    "experiments-info",
    "job-statistics",
    "trial-jobs",
    "trial-jobs/{}",
    "metric-data",
    "metric-data/{}",
    "metric-data-range/{}/{}",
    "metric-data-latest",
    "trial-file/{}/{}",
    "export-data",
    "tensorboard",
    "tensorboard/{}",
    "tensorboard-tasks",
    "{}",
    "{}/{}",
)
METHODS = ("GET", "GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH")
QUERIES = (
    "",
    "?update_type=SEARCH_SPACE",
    "?update_type=TRIAL_CONCURRENCY",
    "?update_type=MAX_EXEC_DURATION",
    "?update_type=MAX_TRIAL_NUM",
    "?update_type=%00",
    "?status=RUNNING",
    "?status=%ff",
    "?type=FINAL",
    "?type=%27;",
)
WORDS = (
    "good1",
    "zzzzz",
    "..",
    "%00",
    "stdout",
    "-1",
    "0",
    "99999999999999999999",
    "' OR 1=1 --",
    "ü😀",
    "a" * 3000,
    " ",
    "\\",
    "1e5",
    "Infinity",
    "\ud800".encode("utf-8", "surrogatepass"),
    b"\xff\xfe",
    "*",
    "%s%n",
    "experiment",
)
LEAVES: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    3,
    1e308,
    10**400,
    0.5,
    "",
    "x",
    "\ud800",
    "\0",
    "9" * 50,
    "2h",
    [],
    {},
    float("nan"),
    float("inf"),
    {"_type": "uniform", "_value": [0, 1]},
    {"_type": "choice", "_value": [{"_name": "a"}]},
)
KEYS = (
    "params",
    "searchSpace",
    "trialConcurrency",
    "maxTrialNumber",
    "maxExperimentDuration",
    "parameter",
    "value",
    "x",
    "\ud800",
    "",
    "trialCommand",
)


class Sender:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def request(self) -> dict[str, Any]:
        chance = self._random
        path = chance.choice(PATHS)
        words = [quote(chance.choice(WORDS), safe="") for _ in range(path.count("{}"))]
        kind = chance.choice(("application/json", "text/plain", "application/x-www-form-urlencoded", ""))
        return {
            "method": chance.choice(METHODS),
            "url": path.format(*words) + chance.choice(QUERIES),
            "content": self._body(),
            "headers": {"Content-Type": kind},
        }

    def _body(self) -> bytes:
        broken = (b"", b"{", b"\xff", b"[" * 2000, b'{"a":' * 500, b"nul", b'"\\ud800"', b"\x00")
        if self._random.random() < 0.2:
            return self._random.choice(broken)
        return json.dumps(self._value(3)).encode()

    def _value(self, depth: int) -> Any:
        chance = self._random
        if depth == 0 or chance.random() < 0.2:
            return chance.choice(LEAVES)
        if chance.random() < 0.2:
            return [self._value(depth - 1) for _ in range(chance.randrange(3))]
        return {chance.choice(KEYS): self._value(depth - 1) for _ in range(1 + chance.randrange(3))}


@pytest.mark.parametrize("seed", range(8))
async def test_no_request_is_a_fault(
    api: httpx.AsyncClient, world: World, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(trials, "_MOST_WAIT_S", 0.01)
    monkeypatch.setattr(placeholder_process, "_COMMAND", "/nowhere/cat")  # a process would outlive the test by a moment
    id_ = (await api.post("/api/v1/experiments", json=world.config(maxTrialNumber=50))).json()["id"]
    await world.add("seeded")
    sender = Sender(seed)
    for number in range(150):
        request = sender.request()
        experiment = "seeded" if number % 3 == 0 else id_
        request["url"] = f"/experiments/{experiment}/api/v1/nni/{request['url']}"
        if request["method"] == "DELETE" and request["url"].endswith("nni/experiment"):
            continue  # it would be over
        answer = await api.request(**request)
        assert answer.status_code < 500, (request, answer.text)
        assert b"Traceback" not in answer.content
        if answer.status_code >= 400 and request["method"] != "HEAD":
            assert list(answer.json()) == ["error"], (request, answer.text)
    for path in ("trial-jobs", "metric-data", "export-data", "experiment", "experiment/imported-data", "check-status"):
        assert (await api.get(f"/experiments/{id_}/api/v1/nni/{path}")).json() is not None
    own = await api.get(f"/api/v1/experiments/{id_}/trials")
    assert own.status_code == 200, own.text
