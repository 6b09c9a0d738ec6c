"""Mounts by containers of the fake OpenPAI themselves, and their errors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import sandbox
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


_MOUNT = "mount -t nfs files.example.test:/data /mnt/own"


@pytest.fixture
def network(client: Client, tmp_path: Path) -> Path:
    """The folder, with one file, behind files.example.test:/data and the container `models` of `shop`."""
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
    """Run commands; returns exit code and output of the last, which may fail."""
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


def test_mount_is_visible_only_in_its_container(client: Client, network: Path) -> None:
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
def test_mount_of_a_missing_export_fails(
    client: Client, network: Path, source: str, point: str, code: str, words: str
) -> None:
    assert _said(client, f"mount -t nfs {source} {point}") == [code, f"mount.nfs: {words}"]


@pytest.mark.parametrize("kind", ["-t nfs", "-t nfs4", ""])
def test_image_without_nfs_client_cannot_mount(client: Client, network: Path, kind: str) -> None:
    client.fake.control("behaviour", image_packages=[])
    assert _said(client, f"command -v mount.nfs || mount {kind} files.example.test:/data /mnt/own") == [
        "32",
        "mount: /mnt/own: bad option; for several filesystems (e.g. nfs, cifs) you might need a /sbin/mount.<type> "
        "helper program.",
    ]


def test_job_installs_the_nfs_client_like_the_example(client: Client, network: Path) -> None:
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
def test_uninstallable_package_fails(
    client: Client, network: Path, before: str, install: str, code: str, words: str
) -> None:
    assert _said(client, before, install) == [code, words]


def test_unreachable_package_servers_fail(client: Client, network: Path) -> None:
    client.fake.control("behaviour", image_packages=[], may_install=False)
    install = "apt-get install -qy nfs-common"
    assert _said(client, "apt-get update", install) == ["100", "E: Unable to locate package nfs-common"]


def test_cluster_without_mount_right_refuses(client: Client, network: Path) -> None:
    client.fake.control("behaviour", may_mount=False)
    assert _said(client, _MOUNT) == ["32", "mount.nfs: Operation not permitted"]
    code, words, *_ = _said(client, "mount --bind /usr /mnt/own", name="two")
    assert (code, "permission denied" in words) == ("32", True)


def test_server_that_refuses_the_client_fails_the_mount(client: Client, network: Path) -> None:
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


def test_hanging_mount_ends_with_its_job(client: Client, network: Path) -> None:
    client.fake.control("behaviour", mount_fault="hang", grace_s=0)
    client.submit("mkdir /mnt/own", "touch /mnt/nfs/ready", _MOUNT)
    until((client.storage / "ready").exists)
    client.call("PUT", "/jobs/alice~one/executionType", json={"value": "STOP"})
    assert client.ended()["state"] == "STOPPED"


def test_rights_are_those_that_the_server_requires(client: Client) -> None:
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
def test_unmountable_blobs_fail(
    client: Client, network: Path, behaviour: dict[str, Any], word: str, code: str, words: str
) -> None:
    client.fake.control("behaviour", **(behaviour or {"mount_fault": ""}))
    written = f"echo '{_BLOBS.replace('shop', word)}' > /tmp/c.yaml"
    said = _said(client, written, "blobfuse2 mount /mnt/own --config-file=/tmp/c.yaml")
    assert said[0] == code and said[1].endswith(words)


def test_storage_names_its_server_and_can_be_mounted(client: Client, network: Path) -> None:
    nfs = {"folder": str(network), "server": "nas.example.test", "path": "/pai"}
    storages = {"nfs": str(client.storage), "own": nfs}
    client.fake.control("users", users={"alice": {"tokens": ["t0ken"]}}, storages=storages)
    told = client.call("GET", "/storages/own").json()
    assert (told["type"], told["data"]) == ("nfs", {"server": "nas.example.test", "path": "/pai"})
    assert _said(client, f"mount -t nfs {told['data']['server']}:/pai /mnt/own", "cat /mnt/own/greeting")[1] == "hello"
