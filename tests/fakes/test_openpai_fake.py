"""The fake OpenPAI follows the service's sources: each test shows one peculiarity that adapters must handle."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import sandbox
from tests.fakes.openpai import exits
from tests.fakes.openpai.client import Client, of_a_new_cluster
from tests.fakes.process import FakeProcess, running
from tests.waiting import until

pytestmark = pytest.mark.skipif(bool(sandbox.missing()), reason=sandbox.missing() or "-")


@pytest.fixture(scope="module")
def fake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeProcess]:
    with running("openpai", tmp_path_factory.mktemp("openpai") / "cluster") as fake:
        yield fake


@pytest.fixture
def client(fake: FakeProcess, tmp_path: Path) -> Client:
    return of_a_new_cluster(fake, tmp_path / "storage")


# Commands


def test_commands_are_lines_of_a_script(client: Client) -> None:
    client.submit("# a comment", "sleep 0 &", "echo both > /mnt/nfs/shown")
    assert client.ended()["state"] == "SUCCEEDED"
    assert client.shown() == "both\n"


def test_script_is_bash_and_ends_at_the_first_failure(client: Client) -> None:
    script = "echo $- ${BASH_VERSION:+bash} > /mnt/nfs/shown; shopt -o pipefail >> /mnt/nfs/shown"
    client.submit(script, "(exit 3) & p=$!", "wait $p; c=$?", "echo never >> /mnt/nfs/shown")
    status = client.ended()
    flags, shell, *rest = client.shown().split()
    assert {"e", "u"} <= set(flags) and (shell, rest) == ("bash", ["pipefail", "on"])
    assert status["appExitMessages"]["runtime"]["originUserExitCode"] == 3


def test_unset_variable_ends_the_script(client: Client) -> None:
    client.submit("echo $NEVER_SET", "echo never > /mnt/nfs/shown")
    assert client.ended()["appExitMessages"]["runtime"]["originUserExitCode"] == 1
    assert not (client.storage / "shown").exists()


def test_stop_signals_only_the_runtime_as_process_1(client: Client) -> None:
    client.fake.control("behaviour", grace_s=1)
    loop = "touch /mnt/nfs/ready; while :; do sleep 0.05; date +%s%N > /mnt/nfs/alive; done"
    client.submit("tr '\\0' ' ' < /proc/1/cmdline > /mnt/nfs/shown", f"trap 'echo > /mnt/nfs/heard' TERM; {loop}")
    until((client.storage / "ready").exists)
    assert client.call("PUT", "/jobs/alice~one/executionType", json={"value": "STOP"}).status_code == 202
    assert client.status()["state"] == "STOPPING"
    assert client.ended()["appExitCode"] == -210
    assert client.shown() == "/bin/bash /usr/local/pai/runtime "
    assert not (client.storage / "heard").exists() and (client.storage / "alive").exists()


def test_job_that_exits_needs_no_grace_period(client: Client) -> None:
    client.submit("touch /mnt/nfs/ready", "while [ ! -e /mnt/nfs/go ]; do sleep 0.05; done")
    until((client.storage / "ready").exists)
    client.call("PUT", "/jobs/alice~one/executionType", json={"value": "STOP"})
    (client.storage / "go").touch()
    assert client.ended()["state"] == "STOPPED"


def test_task_sees_its_storage_and_no_machine_files(client: Client) -> None:
    here = f"{client.storage} {Path(__file__)} {Path.home()}/.bashrc"
    client.submit(f"for one in {here}; do ! test -e $one || echo $one; done > /mnt/nfs/shown")
    assert client.ended()["state"] == "SUCCEEDED"
    assert client.shown() == ""


def test_unshared_storage_is_a_folder_per_user(client: Client) -> None:
    client.submit("echo mine > /there/file", extras={"storages": [{"name": "private", "mountPath": "/there"}]})
    assert client.ended()["state"] == "SUCCEEDED"
    assert (client.storage / "alice" / "file").read_text() == "mine\n"


# Exit codes


@pytest.mark.parametrize("code", [1, 64, 65, 66, 75, 77, 79, 220])
def test_unmatched_code_is_255_with_the_users_code(client: Client, code: int) -> None:
    client.submit(f"exit {code}")
    status = client.ended()
    assert (status["state"], status["appExitCode"], status["appExitSpec"]["phrase"]) == (
        "FAILED",
        255,
        "PAIRuntimeUnknownFailed",
    )
    assert status["appExitMessages"]["runtime"]["originUserExitCode"] == code
    (task,) = client.call("GET", "/jobs/alice~one").json()["taskRoles"]["main"]["taskStatuses"]
    assert task["containerExitCode"] == 255


@pytest.mark.parametrize("code", [130, 131, 137, 143])
def test_transient_code_restarts_even_without_retries(client: Client, code: int) -> None:
    client.submit("echo x >> /mnt/nfs/shown", f"[ $(wc -l < /mnt/nfs/shown) -gt 2 ] || exit {code}", jobRetryCount=0)
    status = client.ended()
    assert (status["state"], status["retries"], status["retryDetails"]["platform"]) == ("SUCCEEDED", 2, 2)
    assert client.shown() == "x\n" * 3


@pytest.mark.parametrize(("code", "retries"), [(139, 1), (134, 1), (3, 1), (136, 0), (141, 0)])
def test_other_codes_are_retried_unless_permanent(client: Client, code: int, retries: int) -> None:
    client.submit(f"exit {code}", jobRetryCount=1)
    assert client.ended()["retryDetails"]["user"] == retries


def test_job_cannot_turn_retries_off(client: Client) -> None:
    assert client.submit("true", jobRetryCount=-2).status_code == 400


@pytest.mark.parametrize(
    ("printed", "code", "phrase"),
    [
        ("ran out of memory trying to allocate 1 GiB", 221, "ContainerTensorflowOOMKilled"),
        ("AttributeError: 'Net' object has no attribute 'fit'", 231, "ContainerSyntaxError"),
        ("ImportError: no such module", 232, "ContainerImportError"),
        ("Segmentation fault", 234, "ContainerSigvFault"),
    ],
)
def test_printed_output_decides_the_code_of_a_failure(client: Client, printed: str, code: int, phrase: str) -> None:
    client.submit(f'echo "{printed}" >&2', "exit 66")
    status = client.ended()
    assert (status["appExitCode"], status["appExitSpec"]["phrase"]) == (code, phrase)
    assert status["appExitMessages"]["runtime"]["originUserExitCode"] == 66
    assert "matchedUserLogString" in status["appExitMessages"]["runtime"]


def test_platform_codes_have_no_runtime_message(client: Client) -> None:
    client.submit("sleep 1000")
    until(lambda: client.status()["state"] == "RUNNING")
    client.fake.control("end", user="alice", name="one", code=-1200)
    status = client.ended()
    assert (status["appExitCode"], status["appExitMessages"]["runtime"]) == (-1200, None)
    assert status["appExitSpec"]["reaction"] == exits.NEVER


def test_lost_node_starts_the_job_again(client: Client) -> None:
    client.submit("sleep 1000")
    until(lambda: client.status()["state"] == "RUNNING")
    client.fake.control("end", user="alice", name="one", code=-1001)
    until(lambda: client.status()["state"] == "RUNNING" and client.status()["attemptId"] == 1)
    assert client.status()["appExitCode"] is None


# Calls


def test_login_answers(client: Client) -> None:
    def login(username: str, password: str) -> tuple[int, str]:
        form = {"username": username, "password": password}
        answer = client.call("POST", "/authn/basic/login", token=None, data=form)
        return answer.status_code, answer.json().get("code", "")

    assert login("nobody", "passw0rd") == (400, "NoUserError")
    assert login("alice", "another") == (400, "IncorrectPasswordError")
    assert login("alice", "short") == (400, "InvalidParametersError")
    assert login("alice", "passw0rd") == (200, "")


def test_wrong_token_is_401_and_an_unknown_user_400(client: Client) -> None:
    assert [client.call("GET", "/jobs", token=token).status_code for token in (None, "wrong")] == [401, 401]
    answer = client.call("GET", "/users/nobody")
    assert (answer.status_code, answer.json()["code"]) == (400, "NoUserError")


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ({"extras": {"storages": [{"name": "none"}]}}, 404, "NoStorageError"),
        ({"defaults": {"virtualCluster": "mars"}}, 403, "ForbiddenUserError"),
        ({"taskRoles": {}, "type": "none"}, 400, "InvalidProtocolError"),
        ({"prerequisites": [{"type": "dockerimage", "uri": "u", "name": "other"}]}, 400, "InvalidProtocolError"),
    ],
)
def test_bad_submissions_are_refused(client: Client, fields: dict[str, Any], status: int, code: str) -> None:
    answer = client.submit("true", **fields)
    assert (answer.status_code, answer.json()["code"]) == (status, code)


def test_name_cannot_be_reused(client: Client) -> None:
    assert client.submit("true").status_code == 202
    client.ended()
    assert (client.submit("true").status_code, client.submit("true").json()["code"]) == (409, "ConflictJobError")


def test_secrets_reach_the_command_and_are_masked_in_texts(client: Client) -> None:
    client.submit("echo '<% $secrets.word %>' > /mnt/nfs/shown", secrets={"word": "hidden+/== & it's"})
    client.ended()
    assert client.shown() == "hidden+/== &amp; it&#x27;s\n"
    config = client.call("GET", "/jobs/alice~one/config")
    assert (config.headers["content-type"].split(";")[0], config.json()["secrets"]) == ("text/yaml", "******")


def test_other_users_may_read_but_not_stop(client: Client) -> None:
    client.fake.control("behaviour", hold=True)
    client.submit("true")
    assert client.call("GET", "/jobs/alice~one", token="b0b").status_code == 200
    answer = client.call("PUT", "/jobs/alice~one/executionType", token="b0b", json={"value": "STOP"})
    assert answer.status_code == 403


def test_list_has_all_users_newest_first_and_filters(client: Client) -> None:
    client.fake.control("behaviour", hold=True)
    for name in ("a1", "a2", "b1"):
        client.submit("true", name=name)
    names = [
        job["name"] for job in client.call("GET", "/jobs", params={"keyword": "a", "limit": 2}, token="b0b").json()
    ]
    assert names == ["b1", "a2"], "a keyword is looked for in the user's name, too"
    assert client.call("GET", "/jobs", params={"limit": 50_001}).status_code == 400
    assert client.call("GET", "/jobs", params={"username": "bob"}).json() == []


def test_excess_calls_get_429_until_the_window_ends(client: Client) -> None:
    client.fake.control("users", users={"alice": {"tokens": ["t0ken"]}}, limits={"list": [1, 60]})
    answers = [client.call("GET", "/jobs") for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 429]
    assert answers[1].headers["retry-after"] == "60"
