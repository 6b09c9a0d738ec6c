"""What trials report through their outboxes: whole, in order, once, and as fast as the reader likes."""

import json
import os
import shutil
import sys
import time
from pathlib import Path

import pytest
from keeper_client_for_tests import TIMEOUT_S, Client, Heard, KeeperProcess

from trial_runner import protocol

pytestmark = pytest.mark.acceptance


def test_lines_come_while_the_job_runs(keeper: KeeperProcess, client: Client) -> None:
    gate = _gate(keeper, "job")
    keeper.spawn(client, "job", "echo 1 >> $NNI_OUTBOX; read line < $D/gate; echo 2 >> $NNI_OUTBOX; exit 3")
    assert client.until_lines("job", 1).lines("job") == ["1"]
    gate.write_text("go\n")
    assert client.until_ended("job").lines("job") == ["2"]


def test_removed_attempt_folder_is_said_with_the_end(keeper: KeeperProcess, client: Client) -> None:
    gate = keeper.directory / "gate"
    os.mkfifo(gate)
    keeper.spawn(client, "job", f"echo 1 >> $NNI_OUTBOX; read line < {gate}")
    client.until_lines("job", 1)
    shutil.rmtree(keeper.attempt("job"))
    gate.write_text("go\n")
    assert client.until_ended("job").lines("job", protocol.NOT_READ_OUTBOX) == [protocol.GONE]


def test_outbox_of_moved_folder_is_read(keeper: KeeperProcess, client: Client) -> None:
    gate = keeper.directory / "gate"
    os.mkfifo(gate)
    keeper.spawn(client, "job", f"exec 3>>$NNI_OUTBOX; echo 1 >&3; read line < {gate}; echo 2 >&3")
    assert client.until_lines("job", 1).lines("job") == ["1"]
    client.close()
    before, moved = keeper.directory, keeper.directory.with_name(f"{keeper.directory.name}-moved")
    before.rename(moved)
    try:
        client = Client(moved / keeper.socket_path.name)
        client.ask("follow", jobs={"job": {protocol.MAIN_OUTBOX: 2}})
        (moved / "gate").write_text("go\n")
        heard = client.until_ended("job")
        client.close()
        assert heard.outboxes == {("job", protocol.MAIN_OUTBOX): ["2"]}
    finally:
        moved.rename(before)


def test_every_file_below_the_outbox_folder_is_an_outbox(keeper: KeeperProcess, client: Client) -> None:
    gate = _gate(keeper, "job")
    command = (
        "echo 1 >> $D/outbox/a; echo 2 >> $D/outbox/b; mkdir -p $D/outbox/node/0; echo 3 >> $D/outbox/node/0/c\n"
        "echo no >> $D/outbox/.hidden; ln -s ../stdout $D/outbox/link; echo no; mkfifo $D/outbox/pipe\n"
        "read line < $D/gate; echo 4 >> $D/outbox/node/0/c; read line < $D/second; echo 5 > $D/outbox/late; exit 0"
    )
    second = gate.with_name("second")  # the same one again could be opened before its first writer has closed it
    os.mkfifo(second)
    keeper.spawn(client, "job", command)
    heard = Heard()
    while len(heard.outboxes) < 3:
        heard.add(client.next_message())
    gate.write_text("go\n")
    while heard.lines("job", "outbox/node/0/c") != ["3", "4"]:
        heard.add(client.next_message())
    second.write_text("go\n")
    heard.outboxes.update(client.until_ended("job").outboxes)
    assert {outbox: lines for (_, outbox), lines in heard.outboxes.items()} == {
        "outbox/a": ["1"],
        "outbox/b": ["2"],
        "outbox/node/0/c": ["3", "4"],
        "outbox/late": ["5"],
    }


def test_lines_of_eight_writers_arrive_complete_and_in_order(keeper: KeeperProcess, client: Client) -> None:
    code = (
        "import os, sys\n"
        "file = open(os.path.join(os.environ['D'], 'outbox', sys.argv[1]), 'a', buffering=1)\n"
        'for number in range(12500): file.write(\'{"value":%d,"of":%s}\\n\' % (number, sys.argv[1]))\n'
    )
    (keeper.directory / "writer.py").write_text(code)
    keeper.spawn(client, "job", f"for i in 1 2 3 4 5 6 7 8; do $PYTHON {keeper.directory}/writer.py $i & done; wait")
    heard = client.until_ended("job")
    for writer in range(1, 9):
        values = [json.loads(line) for line in heard.lines("job", f"outbox/{writer}")]
        assert values == [{"value": number, "of": writer} for number in range(12500)]
    assert heard.jobs["job"]["exit_code"] == 0


def test_line_can_exceed_chunk_size(keeper: KeeperProcess, client: Client) -> None:
    keeper.spawn(client, "job", f"{sys.executable} -c \"print('x' * 3000000 + chr(10) + 'y')\" > $NNI_OUTBOX")
    assert client.until_ended("job").lines("job") == ["x" * 3000000, "y"]


def test_complete_last_line_without_newline_counts(keeper: KeeperProcess, client: Client) -> None:
    keeper.spawn(client, "whole", 'printf \'"a"\\n{"value": 1}\' > $NNI_OUTBOX')
    keeper.spawn(client, "torn", 'printf \'"a"\\n{"value": \' > $NNI_OUTBOX')
    heard = client.until_ended("whole", "torn")
    assert heard.lines("whole") == ['"a"', '{"value": 1}']
    assert heard.lines("torn") == ['"a"']
    assert f"{keeper.attempt('torn')}/{protocol.MAIN_OUTBOX} has 10 bytes without a record" in keeper.log()


@pytest.mark.parametrize("second", ["6", "67890", "6789012"], ids=["shorter", "as long", "longer"])
def test_a_file_that_took_an_outbox_s_place_is_another_outbox(
    keeper: KeeperProcess, client: Client, second: str
) -> None:
    gate = _gate(keeper, "job")
    keeper.spawn(client, "job", f"echo 12345 > $NNI_OUTBOX; read l < $D/gate; echo {second} > $NNI_OUTBOX; exit 0")
    heard = client.until_lines("job", 1)
    gate.write_text("go\n")
    while "job" not in heard.jobs:
        heard.add(client.next_message())
    assert heard.lines("job") == ["12345"]
    assert heard.lines("job", f"{protocol.MAIN_OUTBOX}/2") == [second]
    assert keeper.log().count("main.jsonl became shorter or was replaced: append to it") == 1


def test_replaced_outbox_is_known_to_the_next_keeper(keeper: KeeperProcess, client: Client) -> None:
    gate = _gate(keeper, "job")
    keeper.spawn(client, "job", "echo 12345 > $NNI_OUTBOX; read l < $D/gate; exit 0")
    client.until_lines("job", 1)
    keeper.kill()
    outbox = keeper.attempt("job") / protocol.MAIN_OUTBOX
    outbox.write_text("6\n7\n")
    keeper.start()
    again = keeper.connect()
    again.ask("follow", jobs={"job": {protocol.MAIN_OUTBOX: 6}})
    gate.write_text("go\n")
    assert again.until_ended("job").lines("job", f"{protocol.MAIN_OUTBOX}/2") == ["6", "7"]
    last = keeper.connect()
    stored = {protocol.MAIN_OUTBOX: 6, f"{protocol.MAIN_OUTBOX}/2": 2}
    last.ask("follow", jobs={"job": stored})
    assert last.until_ended("job").lines("job", f"{protocol.MAIN_OUTBOX}/2") == ["7"]


def test_overlong_line_is_reported_with_limit(keeper: KeeperProcess, client: Client) -> None:
    write = "import sys; sys.stdout.write('x' * 20000000 + chr(10) + 'y' + chr(10) + 'z' * 9000000)"
    keeper.spawn(client, "job", f'{sys.executable} -c "{write}" > $NNI_OUTBOX')
    assert client.until_ended("job").lines("job") == [protocol.TOO_LONG, "y", protocol.TOO_LONG]


def test_next_keeper_continues_inside_overlong_line(keeper: KeeperProcess, client: Client) -> None:
    """Where no line ends, it is the same file all the same."""
    gate, half = _gate(keeper, "job"), protocol.MAX_RECORD + 1
    write = f"{sys.executable} -c \"import sys; sys.stdout.write('x' * {half})\" >> $NNI_OUTBOX"
    keeper.spawn(client, "job", f"{write}; read l < $D/gate; {write}; echo >> $NNI_OUTBOX; echo y >> $NNI_OUTBOX")
    client.until_lines("job", 1)
    again = keeper.connect()
    again.ask("follow", jobs={"job": {protocol.MAIN_OUTBOX: half}})
    gate.write_text("go\n")
    assert again.until_ended("job").lines("job") == ["y"]


def test_invalid_utf_8_is_replaced_and_counted_in_bytes(keeper: KeeperProcess, client: Client) -> None:
    keeper.spawn(client, "job", "printf '\"\\xff\"\\n1\\n' > $NNI_OUTBOX")
    heard = client.until_ended("job")
    assert heard.lines("job") == ['"\ufffd"', "1"]
    assert heard.offsets["job", protocol.MAIN_OUTBOX] == 6


def test_the_metrics_file_of_old_sdks_is_an_outbox(keeper: KeeperProcess, client: Client) -> None:
    gate = _gate(keeper, "job")
    (keeper.attempt("job") / "first").write_bytes(_frame("one") + _frame("zwölf") + b"ME000099torn")
    (keeper.attempt("job") / "second").write_bytes(_frame("three") + b"garbage" + _frame("four"))
    command = (
        "mkdir $D/.nni; cat $D/first >> $D/.nni/metrics; read line < $D/gate; cat $D/second >> $D/.nni/metrics; exit 0"
    )
    keeper.spawn(client, "job", command)
    heard = Heard()
    while len(heard.lines("job", protocol.METRICS_FILE)) < 2:
        heard.add(client.next_message())
    gate.write_text("go\n")
    while "job" not in heard.jobs:
        heard.add(client.next_message())
    assert heard.lines("job", protocol.METRICS_FILE) == ["one", "zwölf", "three", "four"]
    assert heard.offsets["job", protocol.METRICS_FILE] == (keeper.attempt("job") / ".nni/metrics").stat().st_size
    assert "bytes without a record" in keeper.log()


def test_lines_are_sent_only_from_requested_offset(keeper: KeeperProcess, client: Client) -> None:
    gate = _gate(keeper, "job")
    keeper.spawn(client, "job", "echo 1 >> $NNI_OUTBOX; read line < $D/gate; echo 22 >> $NNI_OUTBOX; exit 0")
    assert client.until_lines("job", 1).lines("job") == ["1"]
    client.close()
    again = keeper.connect()
    gate.write_text("go\n")
    while again.ask("list")["jobs"]["job"]["state"] == protocol.RUNNING:
        pass
    number = again.send("facts")
    assert again.next_message()["id"] == number, "the first message is the answer"
    answer = again.ask("follow", jobs={"job": {protocol.MAIN_OUTBOX: 2}, "unheard-of": {}})
    assert answer["unknown"] == ["unheard-of"]
    heard = again.until_ended("job")
    assert heard.lines("job") == ["22"]
    again.ask("follow", jobs={"job": {}})
    heard = again.until_ended("job")
    assert heard.lines("job") == ["1", "22"]


def test_a_gap_can_be_asked_for_while_the_job_runs(keeper: KeeperProcess, client: Client) -> None:
    gate = _gate(keeper, "job")
    keeper.spawn(client, "job", "printf '1\\n2\\n3\\n' > $NNI_OUTBOX; read line < $D/gate; exit 0")
    client.until_lines("job", 3)
    client.ask("follow", jobs={"job": {protocol.MAIN_OUTBOX: 2}})
    assert client.until_lines("job", 2).lines("job") == ["2", "3"]
    gate.write_text("go\n")
    assert client.until_ended("job").lines("job") == []


def test_paused_reader_loses_no_lines_and_no_memory(keeper: KeeperProcess, client: Client) -> None:
    """40 MB of lines without a reader: the files are the buffer, and the end waits behind them."""
    before = _resident_bytes(keeper)
    line = '{"type":"intermediate","value":%s}' % ("1" * 465)
    code = f"with open(__import__('os').environ['NNI_OUTBOX'], 'w') as file: file.write('{line}\\n' * 80000)"
    keeper.spawn(client, "big", f'$PYTHON -c "{code.replace(chr(34), chr(92) + chr(34))}"')
    _wait_for_end(keeper.state_file("big"))
    assert _resident_bytes(keeper) - before < 16_000_000
    heard = client.until_ended("big")
    assert heard.lines("big") == [line] * 80000
    assert heard.jobs["big"]["exit_code"] == 0
    assert _resident_bytes(keeper) - before < 16_000_000


def test_short_jobs_that_report_and_exit_lose_nothing(keeper: KeeperProcess, client: Client) -> None:
    names = [f"job-{index}" for index in range(100)]
    for index, name in enumerate(names):
        client.send("spawn", **keeper.request(name, f"echo {index} > $NNI_OUTBOX; exit {index}"))
    heard = client.until_ended(*names)
    assert [heard.lines(name) for name in names] == [[str(index)] for index in range(100)]
    assert [heard.jobs[name]["exit_code"] for name in names] == list(range(100))


def _wait_for_end(state_file: Path) -> None:
    """Asking the keeper would be reading, so there is nothing to wait for but the file."""
    deadline = time.monotonic() + TIMEOUT_S
    while protocol.ENDED not in state_file.read_text():
        assert time.monotonic() < deadline, f"no end was written into {state_file}"
        time.sleep(0.005)


def _gate(keeper: KeeperProcess, name: str) -> Path:
    gate = keeper.attempt(name) / "gate"
    gate.parent.mkdir(parents=True)
    os.mkfifo(gate)
    return gate


def _frame(text: str) -> bytes:
    payload = text.encode() + b"\n"
    return b"ME%06d%s" % (len(payload), payload)


def _resident_bytes(keeper: KeeperProcess) -> int:
    assert keeper.process is not None
    pages = int(Path(f"/proc/{keeper.process.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
