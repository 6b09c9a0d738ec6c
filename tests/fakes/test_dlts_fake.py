"""The fake DLWorkspace follows the service's sources: each test shows one peculiarity that adapters must handle."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fakes import sandbox
from tests.fakes.process import FakeProcess, running
from tests.waiting import until

pytestmark = pytest.mark.skipif(bool(sandbox.missing()), reason=sandbox.missing() or "-")
EMAIL, LOGIN = "alice@example.com", {"email": "alice@example.com", "password": "passw0rd"}


class Client:
    """`storage`: a local folder that pods see at /mnt/team."""

    def __init__(self, fake: FakeProcess, storage: Path) -> None:
        self.fake, self.storage = fake, storage

    def call(self, method: str, path: str, **more: Any) -> httpx.Response:
        return httpx.request(
            method, f"{self.fake.address}/api{path}", params={**LOGIN, **more.pop("params", {})}, **more
        )

    def submit(self, cmd: str, **fields: Any) -> httpx.Response:
        job = {
            "jobId": "one",
            "jobName": "one",
            "team": "platform",
            "vcName": "platform",
            "jobType": "training",
            "jobtrainingtype": "RegularJob",
            "image": "example/image",
            "cmd": cmd,
            "resourcegpu": 0,
            **fields,
        }
        return self.call("POST", "/clusters/.default/jobs", json=job)

    def status(self, id: str = "one") -> str:
        return str(self.call("GET", f"/clusters/.default/jobs/{id}/status").json()["status"])

    def ended(self, id: str = "one") -> str:
        until(lambda: self.status(id) in ("finished", "failed", "killed", "error"))
        return self.status(id)

    def shown(self) -> str:
        return (self.storage / "shown").read_text()


@pytest.fixture(scope="module")
def fake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeProcess]:
    with running("dlts", tmp_path_factory.mktemp("dlts") / "cluster") as fake:
        yield fake


@pytest.fixture
def client(fake: FakeProcess, tmp_path: Path) -> Client:
    (tmp_path / "storage").mkdir()
    users = {EMAIL: {"password": "passw0rd", "teams": ["platform"]}}
    fake.control("reset", users=users, mounts=[[str(tmp_path / "storage"), "/mnt/team"]])
    return Client(fake, tmp_path / "storage")


def test_envs_reaches_the_pod_and_env_does_not(client: Client) -> None:
    words = [{"name": "A", "value": "from envs"}]
    client.submit("echo ${A-} ${B-nothing} > /mnt/team/shown", envs=words, env=[{"name": "B", "value": "from env"}])
    assert client.ended() == "finished"
    assert client.shown() == "from envs nothing\n"


def test_value_with_a_quotation_mark_breaks_the_template(client: Client) -> None:
    client.submit("true", envs=[{"name": "A", "value": 'say "no"'}])
    assert client.ended() == "error"
    client.submit('echo "$A" > /mnt/team/shown', jobId="two", envs=[{"name": "A", "value": r"a\\b\tc"}])
    assert client.ended("two") == "finished"
    assert client.shown() == "a\\b\tc\n"


def test_command_runs_in_a_login_shell_below_the_bootstrap(client: Client) -> None:
    command = "tr '\\0' ' ' < /proc/1/cmdline > /mnt/team/shown; echo $HOME $USER >> /mnt/team/shown; id -u > /dev/null"
    client.submit(command)
    assert client.ended() == "finished"
    assert client.shown() == "bash /dlws-scripts/bootstrap.sh /home/alice alice\n"


def test_killed_job_gets_no_signal(client: Client) -> None:
    client.submit("trap 'echo heard > /mnt/team/shown; exit' TERM; touch /mnt/team/ready; while :; do sleep 0.05; done")
    until((client.storage / "ready").exists)
    answer = client.call("PUT", "/clusters/.default/jobs/one/status", json={"status": "killing"})
    assert answer.json()["result"].startswith("Success")
    assert client.ended() == "killed"
    assert not (client.storage / "shown").exists()


def test_pod_sees_only_its_home_and_mounts(client: Client) -> None:
    here = f"{client.storage} {Path(__file__)} {Path.home()}/.bashrc"
    command = f"touch /home/alice/x /job/x /data/x; for one in {here}; do ! test -e $one || echo $one; done"
    client.submit(f"({command}) > /mnt/team/shown 2>&1")
    assert client.ended() == "finished"
    assert client.shown() == ""


def test_exit_code_is_not_returned(client: Client) -> None:
    client.submit("exit 66")
    assert client.ended() == "failed"
    assert "66" not in client.call("GET", "/clusters/.default/jobs/one/status").text


def test_submission_is_always_answered_with_200_as_text(client: Client) -> None:
    client.fake.control("behaviour", hold=True)
    good = client.submit("true")
    assert (good.status_code, json.loads(good.text)) == (200, {"jobId": "one"})
    again = client.submit("true")
    assert (again.status_code, "database" in again.json()["error"]) == (200, True)
    assert client.submit("true", jobId="x" * 51).json()["error"].endswith("Cannot add job into database.")
    denied = client.submit("true", jobId="three", vcName="strangers")
    assert (denied.status_code, denied.json()["error"]) == (200, "Cannot create job!Access Denied!")
    assert client.submit("true", jobId="four", team=None, vcName="").status_code == 400


def test_teams_are_empty_if_their_service_is_away(client: Client) -> None:
    assert [team["id"] for team in client.call("GET", "/teams").json()] == ["platform"]
    client.fake.control("behaviour", backend=True)
    hidden = client.call("GET", "/teams")
    assert (hidden.status_code, hidden.json()) == (200, [])
    assert client.call("GET", "/v2/clusters/.default/teams/platform/jobs").status_code == 502


def test_list_has_active_jobs_and_the_newest_others(client: Client) -> None:
    client.fake.control("behaviour", pretended_s=0.01)
    for number in range(12):
        client.submit("true", jobId=f"over{number}")
    until(lambda: all(client.status(f"over{number}") == "finished" for number in range(12)))
    client.fake.control("behaviour", hold=True)
    client.submit("true", jobId="open")
    jobs = client.call("GET", "/v2/clusters/.default/teams/platform/jobs").json()
    assert [job["jobId"] for job in jobs] == ["open", *(f"over{number}" for number in range(11, 1, -1))]


def test_wrong_credentials_in_the_query_are_403(client: Client) -> None:
    for login in ({"password": "wrong"}, {"password": ""}, {"email": "bob@example.com"}):
        assert client.call("GET", "/teams", params=login).status_code == 403
    old = {"email": EMAIL, "token": "passw0rd"}
    assert httpx.get(f"{client.fake.address}/api/teams", params=old).status_code == 200


def test_unknown_job_is_404_by_status_and_empty_by_detail(client: Client) -> None:
    assert client.call("GET", "/clusters/.default/jobs/none/status").status_code == 404
    assert client.call("GET", "/v2/clusters/.default/jobs/none").json() == {}
    answer = client.call("PUT", "/clusters/.default/jobs/none/status", json={"status": "killing"})
    assert (answer.status_code, answer.json()["result"][:11]) == (200, "Cannot Kill")


LIST = "/v2/clusters/.default/teams/platform/jobs"


def kill(client: Client, *ids: str) -> Any:
    answer = client.call("POST", "/clusters/.default/jobs/status", json={"status": dict.fromkeys(ids, "killing")})
    return json.loads(answer.json()["killing"])["result"] if answer.status_code == 200 else answer.status_code


def test_failed_query_is_answered_like_an_empty_one(client: Client) -> None:
    client.fake.control("behaviour", pretended_s=60)
    client.submit("true")
    client.fake.control("behaviour", queries=["list", "status"])
    assert client.call("GET", LIST).json() == []
    assert client.call("GET", "/clusters/.default/jobs/one/status").status_code == 404
    client.fake.control("behaviour", queries=["select"])
    assert kill(client, "one") == {}
    client.fake.control("behaviour", queries=["update"])
    assert kill(client, "one") == {"one": "failed to kill"}
    client.fake.control("behaviour", queries=[])
    assert kill(client, "one", "none") == {"one": "successfully killed"}
    assert client.ended() == "killed"
    assert kill(client, "one") == {"one": 'cannot kill a(n) "killed" job'}


def test_list_without_a_database_is_four_times_null(client: Client) -> None:
    client.fake.control("behaviour", database=True)
    answer = client.call("GET", LIST)
    assert (answer.status_code, answer.json()) == (200, [None] * 4)
    assert client.call("GET", "/clusters/.default/jobs/one/status").status_code == 502
    assert kill(client, "one") == 502
