"""A cluster in which the test replaces the containers: it gets their environments and posts like their runners."""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from nni_manager.platforms.scripted.launch import START_FILE, STARTED_FILE
from tests.acceptance.runner_flood import Runner, environment
from tests.live_daemon import Daemon
from tests.waiting import until

Variables = dict[str, str]


class Cluster:
    """An experiment with a number of concurrent trials. `fields`: additional fields of the config."""

    def __init__(self, daemon: Daemon, code: Path, trials: int, **fields: Any) -> None:
        self.daemon = daemon
        config = {
            "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
            "trialCommand": "true",
            "trialCodeDirectory": ".",
            "trialConcurrency": trials,
            "maxTrialNumber": trials + 1,
            "tuner": {"name": "Random", "classArgs": {"optimize_mode": "maximize"}},
            "trainingService": {"platform": "scripted", "launch": "external", "nniManagerIp": "127.0.0.1"},
        }
        self.id = daemon.create({**config, **fields}, code)
        #: Files with the variables of each container, and their contents.
        self.files = self._files(trials)
        self.environments = [environment(file) for file in self.files]

    def _files(self, count: int) -> list[Path]:
        """Wait for this number of containers."""
        folder = self.daemon.data / self.id / "scripted"
        until(lambda: len(list(folder.glob("*/start.json"))) == count)
        return sorted(folder.glob("*/start.env"))

    def start(self, number: int) -> None:
        """Write the file that the platform writes when a container starts; then the job's end is awaited."""
        start = self.files[number].with_name(START_FILE)
        start.rename(start.with_name(STARTED_FILE))

    def trial(self, number: int) -> dict[str, Any]:
        """The API's answer about the trial with this environment."""
        found = self.daemon.call("GET", f"/experiments/{self.id}/trials/{self.trial_id(number)}")
        return found  # type: ignore[no-any-return]

    def attempt(self, number: int) -> dict[str, Any]:
        """Its first attempt."""
        return self.trial(number)["attempts"][0]  # type: ignore[no-any-return]

    def trial_id(self, number: int) -> str:
        return self.environments[number]["NNI_TRIAL_JOB_ID"]

    @property
    def address(self) -> tuple[str, int]:
        parts = urlsplit(self.environments[0]["NNI_MANAGER_URL"])
        return str(parts.hostname), int(parts.port or 0)


def post(variables: Variables, route: str, body: bytes, **headers: str) -> tuple[int, dict[str, Any]]:
    """(status, answer) of exactly this request."""
    parts = urlsplit(variables["NNI_MANAGER_URL"])
    connection = http.client.HTTPConnection(parts.netloc, timeout=20)
    try:
        connection.request("POST", f"{parts.path}/{route}", body, headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def say(variables: Variables, route: str, **body: Any) -> tuple[int, dict[str, Any]]:
    """(status, answer) of a request with the token of the attempt."""
    return post(variables, route, json.dumps(body).encode(), **bearer(variables))


def register(variables: Variables) -> None:
    with Runner(variables) as runner:
        runner.register()


def bearer(variables: Variables) -> dict[str, str]:
    return {"Authorization": f"Bearer {variables['NNI_TRIAL_TOKEN']}"}
