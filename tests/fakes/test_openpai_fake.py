"""The fake OpenPAI does what the service's sources say: each test is of one difference that adapters must bear."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.fakes import sandbox
from tests.fakes.openpai import exits
from tests.fakes.process import FakeProcess, running

pytestmark = pytest.mark.skipif(bool(sandbox.missing()), reason=sandbox.missing() or "-")
PATIENCE_S = 40


class Client:
    """`storage`: of this machine; jobs see it at /mnt/nfs."""

    def __init__(self, fake: FakeProcess, storage: Path) -> None:
        self.fake, self.storage = fake, storage

    def call(self, method: str, path: str, *, token: str | None = "t0ken", **more: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        headers |= more.pop("headers", {})
        return httpx.request(method, f"{self.fake.address}/rest-server/api/v2{path}", headers=headers, **more)

    def submit(
        self, *commands: str, name: str = "one", role: dict[str, Any] | None = None, **fields: Any
    ) -> httpx.Response:
        task = {
            "instances": 1,
            "dockerImage": "image",
            "commands": list(commands),
            "resourcePerInstance": {"cpu": 1, "memoryMB": 64, "gpu": 0},
            **(role or {}),
        }
        job = {
            "protocolVersion": 2,
            "name": name,
            "type": "job",
            "taskRoles": {"main": task},
            "prerequisites": [{"type": "dockerimage", "uri": "example/image", "name": "image"}],
            "extras": {"storages": [{"name": "nfs"}]},
            **fields,
        }
        return self.call("POST", "/jobs", content=yaml.safe_dump(job), headers={"Content-Type": "text/yaml"})

    def status(self, name: str = "one") -> dict[str, Any]:
        status: dict[str, Any] = self.call("GET", f"/jobs/alice~{name}").json()["jobStatus"]
        return status

    def ended(self, name: str = "one") -> dict[str, Any]:
        until(lambda: self.status(name)["state"] in ("SUCCEEDED", "FAILED", "STOPPED"))
        return self.status(name)

    def shown(self) -> str:
        return (self.storage / "shown").read_text()


@pytest.fixture(scope="module")
def fake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeProcess]:
    with running("openpai", tmp_path_factory.mktemp("openpai") / "cluster") as fake:
        yield fake


@pytest.fixture
def client(fake: FakeProcess, tmp_path: Path) -> Client:
    storage = tmp_path / "storage"
    storage.mkdir()
    users = {"alice": {"tokens": ["t0ken"], "password": "passw0rd"}, "bob": {"tokens": ["b0b"]}}
    storages = {"nfs": str(storage), "private": {"folder": str(storage), "share": False}}
    fake.control("reset", users=users, storages=storages)
    return Client(fake, storage)


def until(holds: Callable[[], Any], patience_s: float = PATIENCE_S) -> None:
    limit = time.monotonic() + patience_s
    while not holds():
        assert time.monotonic() < limit
        time.sleep(0.02)


# What runs


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


def test_process_1_is_the_runtime_and_a_stop_reaches_nothing_below_it(client: Client) -> None:
    client.fake.control("behaviour", grace_s=1)
    loop = "touch /mnt/nfs/ready; while :; do sleep 0.05; date +%s%N > /mnt/nfs/alive; done"
    client.submit("tr '\\0' ' ' < /proc/1/cmdline > /mnt/nfs/shown", f"trap 'echo > /mnt/nfs/heard' TERM; {loop}")
    until((client.storage / "ready").exists)
    assert client.call("PUT", "/jobs/alice~one/executionType", json={"value": "STOP"}).status_code == 202
    assert client.status()["state"] == "STOPPING"
    assert client.ended()["appExitCode"] == -210
    assert client.shown() == "/bin/bash /usr/local/pai/runtime "
    assert not (client.storage / "heard").exists() and (client.storage / "alive").exists()


def test_job_that_leaves_by_itself_needs_no_grace(client: Client) -> None:
    client.submit("touch /mnt/nfs/ready", "while [ ! -e /mnt/nfs/go ]; do sleep 0.05; done")
    until((client.storage / "ready").exists)
    client.call("PUT", "/jobs/alice~one/executionType", json={"value": "STOP"})
    (client.storage / "go").touch()
    assert client.ended()["state"] == "STOPPED"


def test_task_sees_its_storage_and_nothing_of_the_machine(client: Client) -> None:
    here = f"{client.storage} {Path(__file__)} {Path.home()}/.bashrc"
    client.submit(f"for one in {here}; do ! test -e $one || echo $one; done > /mnt/nfs/shown")
    assert client.ended()["state"] == "SUCCEEDED"
    assert client.shown() == ""


def test_storage_that_is_not_shared_is_a_folder_of_the_user(client: Client) -> None:
    client.submit("echo mine > /there/file", extras={"storages": [{"name": "private", "mountPath": "/there"}]})
    assert client.ended()["state"] == "SUCCEEDED"
    assert (client.storage / "alice" / "file").read_text() == "mine\n"


# Exit codes


@pytest.mark.parametrize("code", [1, 64, 65, 66, 75, 77, 79, 220])
def test_code_without_a_pattern_is_255_and_the_users_own_stands_beside_it(client: Client, code: int) -> None:
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
def test_transient_code_is_started_again_though_no_retry_is_wanted(client: Client, code: int) -> None:
    client.submit("echo x >> /mnt/nfs/shown", f"[ $(wc -l < /mnt/nfs/shown) -gt 2 ] || exit {code}", jobRetryCount=0)
    status = client.ended()
    assert (status["state"], status["retries"], status["retryDetails"]["platform"]) == ("SUCCEEDED", 2, 2)
    assert client.shown() == "x\n" * 3


@pytest.mark.parametrize(("code", "retries"), [(139, 1), (134, 1), (3, 1), (136, 0), (141, 0)])
def test_other_codes_are_retried_as_often_as_the_job_says_unless_they_are_permanent(
    client: Client, code: int, retries: int
) -> None:
    client.submit(f"exit {code}", jobRetryCount=1)
    assert client.ended()["retryDetails"]["user"] == retries


def test_no_job_can_turn_the_retries_off(client: Client) -> None:
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


def test_platforms_own_codes_have_no_word_of_the_runtime(client: Client) -> None:
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


# What a container mounts by itself

_MOUNT = "mount -t nfs files.example.test:/data /mnt/own"


@pytest.fixture
def network(client: Client, tmp_path: Path) -> Path:
    """The folder of files.example.test:/data, which has one file, and of the container `models` of `shop`."""
    export = tmp_path / "export"
    (export / "team").mkdir(parents=True)
    (export / "greeting").write_text("hello\n")
    client.fake.control(
        "users",
        users={"alice": {"tokens": ["t0ken"]}},
        storages={"nfs": str(client.storage)},
        exports={"files.example.test:/data": str(export)},
        blobs={"shop/models": {"folder": str(export), "key": "a2V5"}},
    )
    return export


def _said(client: Client, *commands: str, name: str = "one") -> list[str]:
    """By commands of which the last may fail: its code, and what it said to both outputs."""
    *first, last = commands
    words = f"{{ {last}; }} > /mnt/nfs/said 2>&1 && c=0 || c=$?"
    client.submit("mkdir /mnt/own", *first, words, "echo $c > /mnt/nfs/shown", name=name)
    assert client.ended(name)["state"] == "SUCCEEDED"
    return [client.shown().strip(), *(client.storage / "said").read_text().splitlines()]


@pytest.mark.parametrize("kind", ["-t nfs", "-t nfs4", "-t nfs -o retry=0,nolock", ""])
def test_container_mounts_an_export_as_root(client: Client, network: Path, kind: str) -> None:
    mount = f"mount {kind} files.example.test:/data/ /mnt/own"
    assert _said(client, mount, "id -u; cat /mnt/own/greeting; echo mine > /mnt/own/new") == ["0", "0", "hello"]
    assert (network / "new").read_text() == "mine\n"


def test_mount_of_a_container_is_seen_there_alone_and_is_gone_with_it(client: Client, network: Path) -> None:
    wait = "until [ -e /mnt/nfs/go ]; do sleep 0.05; done"
    client.submit("mkdir -p /tmp/own", _MOUNT.replace("/mnt", "/tmp"), "touch /mnt/nfs/ready", wait, name="first")
    until((client.storage / "ready").exists)
    assert _said(client, "ls /tmp /tmp/own", name="second")[0] == "2"
    (client.storage / "go").touch()
    assert client.ended("first")["state"] == "SUCCEEDED"
    assert str(network) not in Path("/proc/self/mountinfo").read_text()


def test_export_is_a_folder_below_it_and_may_be_read_only(client: Client, network: Path) -> None:
    mount = "mount -t nfs -o ro files.example.test:/data/team /mnt/own"
    assert _said(client, mount, "touch /mnt/own/new")[0] == "1"
    assert not list((network / "team").iterdir())


def test_unmounted_folder_is_empty_again(client: Client, network: Path) -> None:
    assert _said(client, _MOUNT, "umount /mnt/own && ls /mnt/own") == ["0"]


@pytest.mark.parametrize(
    ("source", "point", "code", "words"),
    [
        ("elsewhere:/data", "/mnt/own", "32", "Failed to resolve server elsewhere: Name or service not known"),
        ("files.example.test:/dat", "/mnt/own", "32", "access denied by server while mounting files.example.test:/dat"),
        (
            "files.example.test:/data/no",
            "/mnt/own",
            "32",
            "mounting files.example.test:/data/no failed, reason given by server: No such file or directory",
        ),
        ("files.example.test:/data", "/mnt/no", "1", "mount point /mnt/no does not exist"),
    ],
)
def test_mount_of_what_is_not_there_fails(
    client: Client, network: Path, source: str, point: str, code: str, words: str
) -> None:
    assert _said(client, f"mount -t nfs {source} {point}") == [code, f"mount.nfs: {words}"]


@pytest.mark.parametrize("kind", ["-t nfs", "-t nfs4", ""])
def test_image_without_the_client_of_nfs(client: Client, network: Path, kind: str) -> None:
    client.fake.control("behaviour", image_packages=[])
    assert _said(client, f"command -v mount.nfs || mount {kind} files.example.test:/data /mnt/own") == [
        "32",
        "mount: /mnt/own: bad option; for several filesystems (e.g. nfs, cifs) you might need a /sbin/mount.<type> "
        "helper program.",
    ]


def test_job_installs_the_client_of_nfs_as_the_services_example_does(client: Client, network: Path) -> None:
    client.fake.control("behaviour", image_packages=[])
    install = "apt-get install --assume-yes nfs-common"
    mount = "mount -t nfs4 files.example.test:/data /mnt/own"
    assert _said(client, "apt-get update", install, mount, "cat /mnt/own/greeting") == ["0", "hello"]


@pytest.mark.parametrize(
    ("before", "install", "code", "words"),
    [
        ("true", "apt-get install -y nfs-common", "100", "E: Unable to locate package nfs-common"),
        ("apt-get update", "apt-get install -y blobfuse2", "100", "E: Unable to locate package blobfuse2"),
        ("apt-get update", "apt-get install nfs-common", "1", "Do you want to continue? [Y/n] Abort."),
    ],
)
def test_package_that_cannot_be_installed(
    client: Client, network: Path, before: str, install: str, code: str, words: str
) -> None:
    assert _said(client, before, install) == [code, words]


def test_servers_of_packages_that_cannot_be_reached(client: Client, network: Path) -> None:
    client.fake.control("behaviour", image_packages=[], may_install=False)
    install = "apt-get install -qy nfs-common"
    assert _said(client, "apt-get update", install) == ["100", "E: Unable to locate package nfs-common"]


def test_cluster_that_gives_no_right_to_mount(client: Client, network: Path) -> None:
    client.fake.control("behaviour", may_mount=False)
    assert _said(client, _MOUNT) == ["32", "mount.nfs: Operation not permitted"]
    code, words, *_ = _said(client, "mount --bind /usr /mnt/own", name="two")
    assert (code, "permission denied" in words) == ("32", True)


def test_server_that_refuses_this_client(client: Client, network: Path) -> None:
    client.fake.control("behaviour", mount_fault="denied")
    assert _said(client, _MOUNT)[1] == "mount.nfs: access denied by server while mounting files.example.test:/data"


def test_mount_hangs_until_the_server_answers(client: Client, network: Path) -> None:
    client.fake.control("behaviour", mount_fault="hang")
    client.submit("mkdir /mnt/own", "touch /mnt/nfs/ready", _MOUNT, "cp /mnt/own/greeting /mnt/nfs/shown")
    until((client.storage / "ready").exists)
    with pytest.raises(AssertionError):
        until(lambda: client.status()["state"] != "RUNNING", 1)
    client.fake.control("behaviour", mount_fault="")
    assert client.ended()["state"] == "SUCCEEDED" and client.shown() == "hello\n"


def test_mount_that_hangs_ends_with_its_job(client: Client, network: Path) -> None:
    client.fake.control("behaviour", mount_fault="hang", grace_s=0)
    client.submit("mkdir /mnt/own", "touch /mnt/nfs/ready", _MOUNT)
    until((client.storage / "ready").exists)
    client.call("PUT", "/jobs/alice~one/executionType", json={"value": "STOP"})
    assert client.ended()["state"] == "STOPPED"


def test_rights_are_those_that_the_server_asks_for(client: Client) -> None:
    client.submit("grep CapEff /proc/self/status > /mnt/nfs/shown", "ls -d /dev/fuse >> /mnt/nfs/shown || true")
    client.ended()
    effective, *fuse = client.shown().splitlines()
    rights = int(effective.split()[1], 16)
    has = {
        name: bool(rights >> bit & 1) for name, bit in {"sys_admin": 21, "dac_read_search": 2, "ipc_lock": 14}.items()
    }
    assert all(has.values()) and not rights >> 27 & 1, "not MKNOD"
    assert fuse == (["/dev/fuse"] if Path("/dev/fuse").exists() else [])


_BLOBS = '{"azstorage": {"account-name": "shop", "account-key": "a2V5", "container": "models"}}'
_YAML = "azstorage:\\n  account-name: shop\\n  account-key: a2V5\\n  container: models\\n"


@pytest.mark.parametrize("config", [_BLOBS, _YAML], ids=["json", "yaml"])
def test_container_mounts_blobs(client: Client, network: Path, config: str) -> None:
    mount = "blobfuse2 mount /mnt/own --config-file=/tmp/c.yaml"
    used = "cat /mnt/own/greeting; blobfuse2 unmount /mnt/own; ls /mnt/own"
    assert _said(client, f"printf '{config}' > /tmp/c.yaml", mount, used) == ["0", "hello"]


@pytest.mark.parametrize(
    ("behaviour", "word", "code", "words"),
    [
        (
            {},
            "other",
            "1",
            "Error: failed to initialize new pipeline [failed to authenticate credentials for azstorage]",
        ),
        ({"may_mount": False}, "shop", "1", "Error: fuse: mount failed: Operation not permitted"),
        ({"image_packages": ["nfs-common"]}, "shop", "127", "blobfuse2: command not found"),
    ],
)
def test_blobs_that_cannot_be_mounted(
    client: Client, network: Path, behaviour: dict[str, Any], word: str, code: str, words: str
) -> None:
    client.fake.control("behaviour", **(behaviour or {"mount_fault": ""}))
    written = f"echo '{_BLOBS.replace('shop', word)}' > /tmp/c.yaml"
    said = _said(client, written, "blobfuse2 mount /mnt/own --config-file=/tmp/c.yaml")
    assert said[0] == code and said[1].endswith(words)


def test_storage_of_the_cluster_says_its_server_and_can_be_mounted_by_it(client: Client, network: Path) -> None:
    nfs = {"folder": str(network), "server": "nas.example.test", "path": "/pai"}
    storages = {"nfs": str(client.storage), "own": nfs}
    client.fake.control("users", users={"alice": {"tokens": ["t0ken"]}}, storages=storages)
    told = client.call("GET", "/storages/own").json()
    assert (told["type"], told["data"]) == ("nfs", {"server": "nas.example.test", "path": "/pai"})
    assert _said(client, f"mount -t nfs {told['data']['server']}:/pai /mnt/own", "cat /mnt/own/greeting")[1] == "hello"


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


def test_name_is_taken_once_and_for_all(client: Client) -> None:
    assert client.submit("true").status_code == 202
    client.ended()
    assert (client.submit("true").status_code, client.submit("true").json()["code"]) == (409, "ConflictJobError")


def test_secrets_reach_the_command_and_are_masked_by_a_search_in_the_text(client: Client) -> None:
    client.submit("echo '<% $secrets.word %>' > /mnt/nfs/shown", secrets={"word": "hidden"})
    client.ended()
    assert client.shown() == "hidden\n"
    config = client.call("GET", "/jobs/alice~one/config")
    assert (config.headers["content-type"].split(";")[0], config.json()["secrets"]) == ("text/yaml", "******")


def test_others_may_look_but_not_stop(client: Client) -> None:
    client.fake.control("behaviour", hold=True)
    client.submit("true")
    assert client.call("GET", "/jobs/alice~one", token="b0b").status_code == 200
    answer = client.call("PUT", "/jobs/alice~one/executionType", token="b0b", json={"value": "STOP"})
    assert answer.status_code == 403


def test_list_is_of_all_users_newest_first_and_filtered(client: Client) -> None:
    client.fake.control("behaviour", hold=True)
    for name in ("a1", "a2", "b1"):
        client.submit("true", name=name)
    names = [
        job["name"] for job in client.call("GET", "/jobs", params={"keyword": "a", "limit": 2}, token="b0b").json()
    ]
    assert names == ["b1", "a2"], "a keyword is looked for in the user's name, too"
    assert client.call("GET", "/jobs", params={"limit": 50_001}).status_code == 400
    assert client.call("GET", "/jobs", params={"username": "bob"}).json() == []


def test_call_too_many_is_429_until_the_window_is_over(client: Client) -> None:
    client.fake.control("users", users={"alice": {"tokens": ["t0ken"]}}, limits={"list": [1, 60]})
    answers = [client.call("GET", "/jobs") for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 429]
    assert answers[1].headers["retry-after"] == "60"
