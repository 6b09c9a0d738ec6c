"""What trials report arrives once, whole and in order, however the manager or the network behaves."""

import json
import os
import random
import signal
import threading
from pathlib import Path

import pytest
from listener_for_tests import (
    Answer,
    Body,
    FakeListener,
    Misbehaviour,
    Runner,
    metrics,
    report,
)

from trial_runner import protocol

pytestmark = pytest.mark.acceptance

_ALL = list(range(20000))


def _every_tenth_fails() -> Misbehaviour:
    chance = random.Random(1)
    return lambda route, body: Answer(503, {"error": "busy"}) if chance.random() < 0.1 else None


def _every_tenth_hangs_up() -> Misbehaviour:
    chance = random.Random(2)
    return lambda route, body: Answer(0) if chance.random() < 0.1 else None


def _latency() -> Misbehaviour:
    never = threading.Event()

    def wait(route: str, body: Body) -> Answer | None:
        never.wait(0.2)
        return None

    return wait


def _too_many_at_first() -> Misbehaviour:
    left = {"metrics": 2, "log": 1, "status": 1, "version": 1}

    def refuse(route: str, body: Body) -> Answer | None:
        left[route] = left.get(route, 0) - 1
        return Answer(429, {"error": "slow down"}, {"Retry-After": "0"}) if left[route] >= 0 else None

    return refuse


def _nonsense_now_and_then() -> Misbehaviour:
    chance = random.Random(3)
    kinds = [Answer(body=b"<html>"), Answer(body=b"[]"), Answer(302, b""), Answer(200, {"offset": None})]
    return lambda route, body: chance.choice(kinds) if route == "metrics" and chance.random() < 0.5 else None


_MISBEHAVIOURS = [
    _every_tenth_fails,
    _every_tenth_hangs_up,
    _latency,
    _too_many_at_first,
    _nonsense_now_and_then,
]


@pytest.mark.parametrize("misbehaviour", _MISBEHAVIOURS)
def test_misbehaviour_only_costs_time(
    listener: FakeListener, runner: Runner, misbehaviour: "type[Misbehaviour]"
) -> None:
    listener.before = misbehaviour()
    ended = runner.run(f"{metrics(len(_ALL))}; echo out; exit 3")
    assert ended.code == 3
    assert listener.values() == _ALL
    assert listener.logs["stdout"] == b"out\n"
    assert listener.exited["exitCode"] == 3
    assert listener.exited["outboxes"] == listener.sizes


def test_answers_that_are_lost_double_nothing(listener: FakeListener, runner: Runner) -> None:
    chance = random.Random(4)
    dropped = []

    def is_dropped(route: str) -> bool:
        if route in ("metrics", "log") and (not dropped or chance.random() < 0.3):
            dropped.append(route)
            return True
        return False

    listener.is_dropped = is_dropped
    runner.run(f"{metrics(len(_ALL))}; seq 30000")
    assert dropped
    assert listener.values() == _ALL
    assert listener.logs["stdout"] == "".join(f"{number}\n" for number in range(1, 30001)).encode()


def test_lost_results_are_sent_again(listener: FakeListener, runner: Runner) -> None:
    os.mkfifo(runner.folder / "gate")
    process = runner.start(f"{metrics(100)}; read line < {runner.folder}/gate; {report(100)}")
    listener.wait_for(lambda: listener.values() == _ALL[:100])
    with listener.news:  # a power loss took the last lines
        listener.lines[protocol.MAIN_OUTBOX] = lines = listener.lines[protocol.MAIN_OUTBOX][:40]
        listener.sizes[protocol.MAIN_OUTBOX] = sum(len(line) + 1 for line in lines)
    (runner.folder / "gate").write_text("go\n")
    runner.wait(process)
    assert listener.values() == _ALL[:101]


def test_a_manager_that_is_away_for_a_while_misses_nothing(listener: FakeListener, runner: Runner) -> None:
    for gate in ("first", "second"):  # one for each wait: a reader of the other would swallow the next line
        os.mkfifo(runner.folder / gate)
    process = runner.start(
        f"{report(0)}; read line < {runner.folder}/first; {report(1)}; echo away; "
        f"read line < {runner.folder}/second; {report(2)}"
    )
    listener.wait_for(lambda: listener.values() == [0])
    listener.close()
    (runner.folder / "first").write_text("go\n")
    assert process.stderr is not None
    assert b"cannot be reached" in process.stderr.readline()
    (runner.folder / "second").write_text("go\n")
    listener.open()
    ended = runner.wait(process)
    assert ended.code == 0
    assert listener.values() == [0, 1, 2]
    assert "the manager answers again" in ended.stderr
    assert listener.exited["exitCode"] == 0


def test_runner_ends_with_trial_if_manager_stays_away(listener: FakeListener, runner: Runner) -> None:
    os.mkfifo(runner.folder / "gate")
    runner.environment[protocol.ENV_DRAIN_S] = "0.5"
    process = runner.start(f"{report(0)}; read line < {runner.folder}/gate; {metrics(5)}; exit 6")
    listener.wait_for(lambda: listener.values() == [0])
    listener.close()
    (runner.folder / "gate").write_text("go\n")
    ended = runner.wait(process)
    assert ended.code == 6
    assert "stays in the trial's folder" in ended.stderr
    assert runner.outbox_values() == [0, 0, 1, 2, 3, 4]


def test_no_patience_is_needed_where_all_goes_well(listener: FakeListener, runner: Runner) -> None:
    runner.run(f"{metrics(1000)}", **{protocol.ENV_DRAIN_S: "0"})
    assert listener.values() == _ALL[:1000]
    assert listener.exited["exitCode"] == 0


def test_signal_during_delivery_shortens_patience(listener: FakeListener, runner: Runner) -> None:
    listener.before = lambda route, body: Answer(503) if route == "metrics" else None
    process = runner.start(f"{report(0)}; exit 6", **{protocol.ENV_GRACE_S: "0.1", protocol.ENV_DRAIN_S: "1000"})
    exit_file = runner.system_dir / protocol.EXIT_FILE
    listener.wait_for(lambda: exit_file.exists() and listener.posts[-1][0] == "metrics")
    process.send_signal(signal.SIGTERM)
    assert runner.wait(process).code == 6


def test_a_hundred_thousand_results_in_a_burst(listener: FakeListener, runner: Runner) -> None:
    runner.run(metrics(100_000))
    assert listener.values() == list(range(100_000))
    posts = [body for route, body in listener.posts if route == "metrics"]
    assert len(posts) < 100
    assert max(sum(len(line) + 1 for line in body["lines"]) for body in posts) <= protocol.MAX_METRICS_POST


def test_memory_stays_small_however_much_waits(listener: FakeListener, runner: Runner) -> None:
    """30 MB of results and 30 MB of output wait in files until the manager takes them."""
    (runner.folder / "much.py").write_text(
        "import os, sys\n"
        'line = \'{"type":"intermediate","value":"%s"}\\n\' % (\'1\' * 564)\n'
        "with open(os.environ['NNI_OUTBOX'], 'a') as file: file.write(line * 50000)\n"
        "sys.stdout.write(line * 50000)\n"
    )
    peaks: list[int] = []

    def measure(route: str, body: Body) -> Answer | None:
        if body.get("event") in ("started", "exited"):
            peaks.append(_peak_bytes(process.pid))
        is_running = not (runner.system_dir / protocol.EXIT_FILE).exists()
        return Answer(503) if is_running and route in ("metrics", "log") else None

    listener.before = measure
    process = runner.start(f"$PYTHON {runner.folder}/much.py")
    assert len(runner.wait(process).stdout) > 25_000_000
    assert len(listener.lines[protocol.MAIN_OUTBOX]) == 50_000
    assert len(listener.logs["stdout"]) == (runner.system_dir / "stdout").stat().st_size
    assert peaks[1] - peaks[0] < 8_000_000


def test_a_chatty_outbox_does_not_starve_the_others(listener: FakeListener, runner: Runner) -> None:
    """Ten batches wait in one outbox, one in the other: both are served in turns."""
    listener.before = lambda route, body: Answer(503) if route == "metrics" else None
    gate = runner.folder / "gate"
    os.mkfifo(gate)
    process = runner.start(f"{metrics(100_000)}; echo 1 > $NNI_SYS_DIR/outbox/z; echo > {gate}; exit 0")
    gate.read_text()
    listener.before = lambda route, body: None
    runner.wait(process)
    served = [body["outbox"] for route, body in listener.posts if route == "metrics"]
    assert len(listener.lines[protocol.MAIN_OUTBOX]) == 100_000
    assert served.index("outbox/z") < len(served) - 5


def test_too_large_posts_are_split(listener: FakeListener, runner: Runner) -> None:
    def refuse_large(route: str, body: Body) -> Answer | None:
        is_large = route == "metrics" and sum(map(len, body["lines"])) > 20_000
        return Answer(413, {"error": "too large"}) if is_large else None

    listener.before = refuse_large
    ended = runner.run(f"{metrics(3000)}; {report('x' * 30_000)}; {report('last')}")
    assert listener.lines[protocol.MAIN_OUTBOX].pop(3000) == protocol.TOO_LONG, "it is named in its place"
    assert listener.values() == [*range(3000), "last"]
    assert "too large for the manager" in ended.stderr
    assert listener.exited["outboxes"] == listener.sizes


def test_an_outbox_that_is_refused_is_given_up_and_kept(listener: FakeListener, runner: Runner) -> None:
    listener.before = lambda route, body: (
        Answer(400, {"error": "no such outbox"}) if body.get("outbox") == "outbox/a" else None
    )
    ended = runner.run(f"echo 1 > $NNI_SYS_DIR/outbox/a; {report(1)}")
    assert ended.code == 0
    assert listener.values() == [1]
    assert "The manager refused outbox/a (no such outbox)" in ended.stderr
    assert sum(body.get("outbox") == "outbox/a" for _, body in listener.posts) == 1


def test_logs_that_are_refused_do_not_hold_up_results(listener: FakeListener, runner: Runner) -> None:
    listener.before = lambda route, body: Answer(400, {"error": "no logs"}) if route == "log" else None
    ended = runner.run(f"echo out; {report(1)}")
    assert ended.code == 0
    assert listener.values() == [1]
    assert sum(route == "log" for route, _ in listener.posts) == 1


def test_heartbeats_come_while_results_cannot_be_stored(listener: FakeListener, runner: Runner) -> None:
    listener.before = lambda route, body: (
        Answer(429, {"error": "later"}, {"Retry-After": "1000"}) if route == "metrics" else None
    )
    runner.start(f"{report(1)}; exec sleep 1000")
    listener.wait_for_post("metrics")
    beats = sum(route == "heartbeat" for route, _ in listener.posts)
    listener.wait_for_post("heartbeat", beats + 3)
    assert sum(route == "metrics" for route, _ in listener.posts) == 1, "it waits as long as it was asked to"


def test_lines_arrive_as_they_were_written(listener: FakeListener, runner: Runner) -> None:
    values = ["ä €", "\u2028", "\U0001f600", 'quote " and \\', 1e300]
    (runner.folder / "values.jsonl").write_text(
        "".join(json.dumps({"type": "intermediate", "value": value}, ensure_ascii=False) + "\n" for value in values)
    )
    runner.run(f"cat {runner.folder}/values.jsonl >> $NNI_OUTBOX")
    assert listener.values() == values


def _peak_bytes(pid: int) -> int:
    (line,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM")]
    return 1024 * int(line.split()[1])
