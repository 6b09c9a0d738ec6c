"""What a trial may make of its own folder: pipes, links, deep trees. The keeper goes on and ships nothing else."""

import time
from pathlib import Path

import pytest
from keeper_client_for_tests import TIMEOUT_S, Client, KeeperProcess

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(40)]

_REPORT = "echo 1 >> $NNI_OUTBOX; "


@pytest.fixture
def secret(keeper: KeeperProcess) -> Path:
    """A folder of another user, laid out as an attempt's."""
    folder = keeper.directory / "elsewhere"
    (folder / "outbox").mkdir(parents=True)
    for name in ("outbox/main.jsonl", "outbox/more.jsonl", "stderr", "stdout"):
        (folder / name).write_text('"s3cret"\n')
    return folder


@pytest.mark.parametrize("name", ["stderr", "stdout"])
@pytest.mark.parametrize("kind", ["pipe", "link", "folder"])
def test_replaced_job_files_do_not_stop_the_keeper(
    keeper: KeeperProcess, client: Client, secret: Path, name: str, kind: str
) -> None:
    make = {"pipe": f"mkfifo {name}", "link": f"ln -s {secret}/stderr {name}", "folder": f"mkdir -p {name}/in"}[kind]
    keeper.spawn(client, "job", f"{_REPORT} cd $D; rm -f {name}; {make}; exit 1")
    heard = client.until_ended("job")
    assert heard.jobs["job"]["exit_code"] == 1
    assert "s3cret" not in heard.jobs["job"]["stderr_tail"]
    assert heard.lines("job") == ["1"]
    assert (secret / "stderr").read_text() == '"s3cret"\n'
    keeper.spawn(client, "next", "exit 0")
    assert client.until_ended("next").jobs["next"]["exit_code"] == 0


def test_too_deep_outbox_files_are_skipped(keeper: KeeperProcess, client: Client) -> None:
    nest = "import os\nos.chdir(os.environ['D'] + '/outbox')\nfor _ in range(1900): os.mkdir('d'); os.chdir('d')"
    keeper.spawn(client, "job", f'"$PYTHON" -c "$NEST"; {_REPORT} exit 3', environment={"NEST": nest})
    heard = client.until_ended("job")
    assert (heard.jobs["job"]["exit_code"], heard.lines("job")) == (3, ["1"])
    assert "cannot be listed, or exceeds the limit of files or depth" in keeper.log()


@pytest.mark.parametrize("way", ["outbox", "outbox/inner", "stdout", "."])
def test_nothing_is_shipped_or_read_through_a_link(
    keeper: KeeperProcess, client: Client, secret: Path, way: str
) -> None:
    aim = {"outbox": f"{secret}/outbox", "outbox/inner": f"{secret}/outbox", "stdout": f"{secret}/stdout"}
    if way == ".":
        exchange = f"mv $D $D-away; ln -s {secret} $D; "
    else:
        exchange = f"mv $D/{way} $D/away 2>/dev/null; ln -s {aim[way]} $D/{way}; "
    keeper.spawn(client, "job", f"{exchange} sleep 0.2; exit 1")
    heard = client.until_ended("job")
    assert "s3cret" not in f"{heard.outboxes} {heard.jobs}"
    assert heard.jobs["job"]["exit_code"] == 1
    for file in ("stdout", "stderr", "outbox/more.jsonl"):
        answer = client.send("read", attempt_directory=str(keeper.attempt("job")), file=file)
        deadline = time.monotonic() + TIMEOUT_S
        while (message := client.next_message()).get("id") != answer:
            assert time.monotonic() < deadline
        assert "s3cret" not in str(message) and "InMzY3JldCI" not in str(message)
    assert sorted(path.name for path in secret.iterdir()) == ["outbox", "stderr", "stdout"]
