"""A runner from its start to its end: what the command gets, what the manager hears, what is left behind."""

import base64
import io
import json
import os
import signal
import sys
import tarfile
from pathlib import Path

import pytest
from listener_for_tests import (
    MANAGER,
    TOKEN,
    Answer,
    Body,
    FakeListener,
    Runner,
    is_alive,
    metrics,
    report,
)

from nni_manager.domain.ids import CONTAINER
from nni_manager.platform_kit.payload import runner_archive
from tests.waiting import until
from trial_runner import protocol

pytestmark = pytest.mark.acceptance


@pytest.mark.parametrize("is_together", [True, False], ids=["this manager", "an earlier one"])
def test_command_runs_and_posts_are_in_order(listener: FakeListener, runner: Runner, is_together: bool) -> None:
    listener.takes_together = is_together
    ended = runner.run(f"{report(1)}; echo out; echo err >&2; {report(2)}")
    assert ended.code == 0
    assert ended.stdout == "out\n"
    assert ended.stderr == "err\n"
    routes = [route for route, _ in listener.posts]
    asked = [] if is_together else ["code", "parameters", "outboxes"]
    assert routes[: 2 + len(asked)] == ["version", *asked, "status"]
    assert listener.values() == [1, 2]
    assert listener.logs == {"stdout": b"out\n", "stderr": b"err\n"}
    started, exited = listener.statuses
    assert started["event"] == "started"
    assert exited["exitCode"] == 0
    assert exited["signal"] is None
    assert exited["stderrTail"] == ""
    assert exited["startedMs"] == started["startedMs"] <= exited["endedMs"]
    assert exited["outboxes"] == {protocol.MAIN_OUTBOX: (runner.system_dir / protocol.MAIN_OUTBOX).stat().st_size}
    assert listener.connections == 1, "the connection is kept"


def test_version_post_identifies_the_runner(listener: FakeListener, runner: Runner) -> None:
    process = runner.start("$PYTHON -c 'import platform; print(platform.python_version())'")
    python = runner.wait(process).stdout.strip()
    (version,) = listener.versions
    assert version["version"] == protocol.VERSION
    assert version["python"] == python
    assert version["pid"] == process.pid
    assert version["channel"] == protocol.PUSH
    assert version["host"]


def test_the_command_gets_the_environment_of_a_trial(listener: FakeListener, runner: Runner) -> None:
    runner.run("cd $NNI_SYS_DIR; env -0 > env; echo $OLDPWD > pwd; ps -o sid= -p $$ > sid; echo $$ > pid")
    folder = runner.system_dir
    environment = dict(entry.split("=", 1) for entry in (folder / "env").read_text().split("\0")[:-1])
    assert environment[protocol.ENV_SYSTEM_DIR] == environment[protocol.ENV_OUTPUT_DIR] == str(folder)
    assert environment[protocol.ENV_CODE_DIR] == str(folder / "code") == (folder / "pwd").read_text().strip()
    assert environment[protocol.ENV_OUTBOX] == str(folder / protocol.MAIN_OUTBOX)
    assert environment[protocol.ENV_COMMAND_CHANNEL] == protocol.COMMAND_CHANNEL
    assert environment[protocol.ENV_SEQUENCE_ID] == "7"
    assert environment[protocol.ENV_JOB].startswith("nni_exp_exp1_trial_abcde:")
    assert environment["PYTHONPATH"].split(":")[-1].endswith("trial_runner/stand_in")
    assert (folder / "sid").read_text().strip() == (folder / "pid").read_text().strip(), "a session of its own"
    assert json.loads((folder / protocol.PARAMETER_FILE).read_text()) == listener.parameters


def test_the_token_is_nowhere_to_be_found(listener: FakeListener, runner: Runner) -> None:
    looking = "cat /proc/self/environ; cat /proc/$PPID/environ; cat /proc/$PPID/cmdline; env"
    ended = runner.run(f"({looking}) 2>&1")
    assert "NNI_PLATFORM" in ended.stdout, "it did look"
    everything = (
        ended.stdout
        + ended.stderr
        + "".join(path.read_text() for path in runner.system_dir.rglob("*") if path.is_file())
    )
    assert TOKEN not in everything
    assert listener.exited["exitCode"] is not None


def test_code_is_fetched_and_unpacked(listener: FakeListener, runner: Runner) -> None:
    listener.code = _archive({"train.py": b"print('trained')", "data.txt": b"d"})
    assert runner.run("$PYTHON train.py && cat data.txt").stdout == "trained\nd"


@pytest.mark.parametrize("damage", ["", "half", "no base64"])
def test_code_in_registration_answer_is_used(listener: FakeListener, runner: Runner, damage: str) -> None:
    listener.code = _archive({"trial.py": b"print('from the archive')\n"})
    whole = base64.b64encode(listener.code).decode()
    listener.inline_code = {"": whole, "half": whole[: len(whole) // 8 * 4], "no base64": "?"}[damage]
    assert runner.run("$PYTHON trial.py").stdout == "from the archive\n"
    assert ("code" in [route for route, _ in listener.posts]) is bool(damage), "asked for where it was not whole"


def test_code_that_is_present_is_not_fetched(listener: FakeListener, runner: Runner) -> None:
    code = runner.folder / "here"
    code.mkdir()
    runner.environment.update({protocol.ENV_CODE: "present", protocol.ENV_CODE_DIR: str(code)})
    assert runner.run("pwd").stdout == f"{code}\n"
    assert "code" not in [route for route, _ in listener.posts]


def test_bad_archive_is_reported_and_nothing_runs(listener: FakeListener, runner: Runner) -> None:
    listener.code = _archive({"../escaped": b"x"})
    ended = runner.run("touch $NNI_SYS_DIR/ran")
    assert ended.code == protocol.EXIT_BAD_CODE
    assert "'../escaped' is not in a folder of the archive" in ended.stderr
    assert "'../escaped' is not in a folder of the archive" in listener.exited["stderrTail"]
    assert not (runner.system_dir / "ran").exists()
    assert not (runner.system_dir / "escaped").exists()


def test_code_that_comes_in_half_is_asked_for_again(listener: FakeListener, runner: Runner) -> None:
    listener.code = whole = _archive({"data.bin": os.urandom(300_000)})
    asked = []

    def cut_short(route: str, body: Body) -> Answer | None:
        if route == "code" and not asked:
            asked.append(route)
            return Answer(body=whole[:1000], headers={"Content-Length": str(len(whole)), "Connection": "close"})
        return None

    listener.before = cut_short
    ended = runner.run("stat -c %s data.bin")
    assert ended.stdout == "300000\n"
    assert asked


@pytest.mark.parametrize(("command", "code"), [("exit 7", 7), ("kill -9 $$", 137), ("kill -SEGV $$", 139)])
def test_the_runner_ends_as_the_command_did(listener: FakeListener, runner: Runner, command: str, code: int) -> None:
    ended = runner.run(f"echo why >&2; {command}")
    assert ended.code == code
    exited = listener.exited
    assert (exited["exitCode"], exited["signal"]) == ((code, None) if code < 128 else (None, code - 128))
    assert exited["stderrTail"] == "why\n"
    written = json.loads((runner.system_dir / protocol.EXIT_FILE).read_text())
    assert (written["exit_code"], written["signal"]) == (exited["exitCode"], exited["signal"])


def test_the_end_of_standard_error_is_at_most_2048_bytes(listener: FakeListener, runner: Runner) -> None:
    runner.run("printf 'ä%.0s' $(seq 3000) >&2; exit 1")
    tail = listener.exited["stderrTail"]
    assert len(tail.encode()) == protocol.MAX_STDERR_TAIL
    assert set(tail) <= {"ä", "?"}


@pytest.mark.parametrize(
    ("status", "code"), [(409, protocol.EXIT_VERSION_REFUSED), (410, protocol.EXIT_FENCED), (403, protocol.EXIT_DENIED)]
)
def test_a_refused_runner_does_not_start_the_command(
    listener: FakeListener, runner: Runner, status: int, code: int
) -> None:
    sentence = "Runner 0.5.0 and manager 0.6.0 do not match: build the runner again."
    listener.before = lambda route, body: Answer(status, {"error": sentence})
    ended = runner.run("touch $NNI_SYS_DIR/ran")
    assert ended.code == code
    assert sentence in ended.stderr
    assert not (runner.system_dir / "ran").exists()
    assert [route for route, _ in listener.posts] == ["version"]


def test_a_wrong_token_is_said_without_the_token(listener: FakeListener, runner: Runner) -> None:
    ended = runner.run("true", **{protocol.ENV_TOKEN: f"{MANAGER}.another-token"})
    assert ended.code == protocol.EXIT_DENIED
    assert "another-token" not in ended.stderr


def test_answer_of_other_manager_is_ignored(listener: FakeListener, runner: Runner) -> None:
    """A port that another program has by now: its refusal of the token does not count."""
    ended = runner.run("true", **{protocol.ENV_TOKEN: "another-manager.token", protocol.ENV_DRAIN_S: "0.2"})
    assert ended.code == protocol.EXIT_UNREACHABLE
    assert "is not the manager of this attempt (it answered 401 Unauthorized)" in ended.stderr


def test_a_trial_that_is_not_known_yet_is_asked_about_again(listener: FakeListener, runner: Runner) -> None:
    answers = [Answer(404, {"error": "unknown trial"})]
    listener.before = lambda route, body: answers.pop() if answers else None
    assert runner.run("exit 3").code == 3


def test_a_manager_that_is_not_there_is_waited_for(listener: FakeListener, runner: Runner) -> None:
    listener.close()
    process = runner.start("exit 3")
    assert process.stderr is not None
    assert b"cannot be reached" in process.stderr.readline()
    listener.open()
    assert runner.wait(process).code == 3
    assert listener.exited["exitCode"] == 3


def test_patience_before_the_start_ends(listener: FakeListener, runner: Runner) -> None:
    listener.close()
    ended = runner.run("touch $NNI_SYS_DIR/ran", **{protocol.ENV_DRAIN_S: "0.2"})
    assert ended.code == protocol.EXIT_UNREACHABLE
    assert not (runner.system_dir / "ran").exists()


def test_a_signal_before_the_start_ends_the_runner(listener: FakeListener, runner: Runner) -> None:
    listener.close()
    process = runner.start("touch $NNI_SYS_DIR/ran")
    assert process.stderr is not None
    process.stderr.readline()
    process.terminate()
    assert runner.wait(process).code == 128 + signal.SIGTERM
    assert not (runner.system_dir / "ran").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_reach_command_for_cleanup(listener: FakeListener, runner: Runner, number: int) -> None:
    traps = f"trap '{report('bye')}; exit 5' {number}; {report('on')}; while :; do sleep 0.01; done"
    process = runner.start(traps)
    listener.wait_for(lambda: listener.values() == ["on"])
    process.send_signal(number)
    assert runner.wait(process).code == 5
    assert listener.values() == ["on", "bye"]
    assert listener.exited["exitCode"] == 5


def test_ignored_sigterm_leads_to_sigkill_after_grace_period(listener: FakeListener, runner: Runner) -> None:
    process = runner.start(
        f"trap '' TERM; {report('on')}; while :; do sleep 1000; done", **{protocol.ENV_GRACE_S: "0.2"}
    )
    listener.wait_for(lambda: listener.values() == ["on"])
    process.terminate()
    assert runner.wait(process).code == 128 + signal.SIGKILL
    assert listener.exited["signal"] == signal.SIGKILL


def test_manager_can_request_end(listener: FakeListener, runner: Runner) -> None:
    process = runner.start(f"trap '{report('bye')}; exit 5' TERM; {report('on')}; while :; do sleep 0.01; done")
    listener.wait_for(lambda: listener.values() == ["on"])
    listener.stop = 20.0
    assert runner.wait(process).code == 5
    assert listener.values() == ["on", "bye"]


def test_the_manager_s_grace_period_counts(listener: FakeListener, runner: Runner) -> None:
    process = runner.start(
        f"trap '' TERM; {report('on')}; while :; do sleep 1000; done", **{protocol.ENV_GRACE_S: "1000"}
    )
    listener.wait_for(lambda: listener.values() == ["on"])
    listener.stop = 0.1
    assert runner.wait(process).code == 128 + signal.SIGKILL


def test_answer_to_started_can_request_end(listener: FakeListener, runner: Runner) -> None:
    def cancel_now(route: str, _body: Body) -> None:
        if route == "status":
            listener.stop = 0.0

    listener.before = cancel_now
    assert runner.run("exec sleep 1000").code == 128 + signal.SIGKILL


def test_a_decided_attempt_is_ended(listener: FakeListener, runner: Runner) -> None:
    process = runner.start(f"setsid sleep 1000 & echo $! > $NNI_SYS_DIR/pid; {report('on')}; wait")
    listener.wait_for(lambda: listener.values() == ["on"])
    listener.before = lambda route, body: Answer(410, {"error": "attempt 2 runs"})
    ended = runner.wait(process)
    assert ended.code == protocol.EXIT_FENCED
    assert "attempt 2 runs" in ended.stderr
    assert not is_alive(int((runner.system_dir / "pid").read_text()))
    assert [status["event"] for status in listener.statuses] == ["started"]


def test_replica_ends_normally_after_closed_attempt(listener: FakeListener, runner: Runner) -> None:
    listener.before = lambda route, body: Answer(410, {"error": "decided"}) if route == "heartbeat" else None
    process = runner.start("until [ -e $NNI_SYS_DIR/go ]; do sleep 0.02; done; exit 3", **{protocol.ENV_REPORTER: "0"})
    listener.wait_for(lambda: any(route == "heartbeat" for route, _ in listener.posts))
    (runner.system_dir / "go").touch()
    assert runner.wait(process).code == 3


def test_late_replica_of_closed_attempt_is_not_a_failure(listener: FakeListener, runner: Runner) -> None:
    listener.before = lambda route, body: Answer(410, {"error": "decided"})
    ended = runner.run("touch $NNI_SYS_DIR/ran", **{protocol.ENV_REPORTER: "0"})
    assert (ended.code, (runner.system_dir / "ran").exists()) == (0, False)


def test_earlier_end_decides_exit_code_and_logs_arrive(listener: FakeListener, runner: Runner) -> None:
    """The answer to the word about its end is lost; by the time it is repeated the attempt is decided."""
    listener.decides = True
    lost: list[str] = []

    def is_dropped(route: str) -> bool:
        is_first = listener.has_heard_the_end and not lost
        lost.extend([route] if is_first else [])
        return is_first

    listener.is_dropped = is_dropped
    ended = runner.run(f"{report(1)}; echo out; exit 3")
    assert ended.code == 3
    assert listener.values() == [1]
    assert sum(body.get("event") == "exited" for _, body in listener.posts) == 2
    assert listener.logs["stdout"] == b"out\n"


def test_results_come_first_then_the_end_then_logs(listener: FakeListener, runner: Runner) -> None:
    """A trial's end must not wait for 300 MB of output, nor be forgotten with it."""
    listener.decides = True
    size = 20_000_000
    ended = runner.run(f"head -c {size} /dev/zero | tr '\\0' x; {report(1)}; exit 3")
    assert ended.code == 3
    order = [body.get("event") or route for route, body in listener.posts]
    end = order.index("exited")
    assert max(place for place, name in enumerate(order) if name == "metrics") < end
    assert set(order[end + 1 :]) == {"log"} and order[end:].count("log") > 10
    assert len(listener.logs["stdout"]) == size


def test_more_than_a_thousand_outboxes(listener: FakeListener, runner: Runner) -> None:
    """As from a pool of processes: all arrive, the folder is not listed again for each, and the end is reported."""
    (runner.folder / "many.py").write_text(
        "import os\n"
        "for n in range(3000):\n"
        "    with open(os.environ['NNI_SYS_DIR'] + '/outbox/p%d.jsonl' % n, 'w') as file:\n"
        '        file.write(\'{"type":"intermediate","value":%d}\\n\' % n)\n'
    )
    assert runner.run(f"$PYTHON {runner.folder}/many.py").code == 0
    assert sorted(value for outbox in listener.lines for value in listener.values(outbox)) == list(range(3000))
    assert len(listener.exited["outboxes"]) == protocol.MOST_OUTBOXES


@pytest.mark.parametrize(
    "way",
    [
        "{stray} &",
        "setsid {stray} &",
        "(env -i setsid {stray} &)",
        "(env -i setsid /bin/bash -c '(env -i setsid {stray} &)' &)",
    ],
)
def test_strays_end_with_the_command(listener: FakeListener, runner: Runner, way: str) -> None:
    stray = runner.folder / "stray.sh"
    os.mkfifo(runner.folder / "up")
    stray.write_text(f"trap '' TERM\necho $$ > {runner.folder}/pid\necho > {runner.folder}/up\nexec sleep 1000\n")
    ended = runner.run(f"{way.format(stray=f'/bin/bash {stray}')}\nread line < {runner.folder}/up; exit 3")
    assert ended.code == 3
    assert not is_alive(int((runner.folder / "pid").read_text()))


def test_strays_keep_grace_period_after_command(listener: FakeListener, runner: Runner) -> None:
    stray = runner.folder / "stray.sh"
    stray.write_text(f"trap '{report('saved')}; exit' TERM\n{report('on')}\nwhile :; do sleep 0.01; done\n")
    process = runner.start(f"setsid /bin/bash {stray} & exec sleep 1000")
    listener.wait_for(lambda: listener.values() == ["on"])
    process.terminate()
    assert runner.wait(process).code == 128 + signal.SIGTERM
    assert listener.values() == ["on", "saved"]


def test_results_that_old_sdks_print_are_results(listener: FakeListener, runner: Runner) -> None:
    (runner.folder / "trial.py").write_text(
        "def report(kind, value):\n"
        '    text = \'{"parameter_id": 3, "type": "%s", "sequence": 0, "value": "%s"}\' % (kind, value)\n'
        "    print('NNISDK_MEb' + chr(39) + text + chr(39))\n"
        "print('50%|###', end='\\r')\n"
        "print('loss', end=' ')\n"
        "report('PERIODICAL', '0.5')\n"
        'report(\'PERIODICAL\', r\'{\\"default\\": 1, \\"note\\": \\"it\' + "\'" + r\'s\\"}\')\n'
        "report('FINAL', 'NaN')\n"
    )
    assert runner.run(f"$PYTHON {runner.folder}/trial.py").code == 0
    first, second, last = map(json.loads, listener.lines[protocol.STDOUT_METRICS_OUTBOX])
    assert first == {"type": "intermediate", "value": 0.5}
    assert second == {"type": "intermediate", "value": {"default": 1, "note": "it's"}}
    assert last["type"] == "final"
    assert last["value"] != last["value"]


def test_the_metrics_file_of_old_sdks_is_followed(listener: FakeListener, runner: Runner) -> None:
    payload = '{"type": "FINAL", "value": "0.5"}'
    runner.run(
        f"mkdir $NNI_SYS_DIR/.nni; printf 'ME%06d%s\\n' {len(payload) + 1} '{payload}' >> $NNI_SYS_DIR/.nni/metrics"
    )
    assert listener.lines == {protocol.METRICS_FILE: [payload]}


def test_results_come_while_the_command_runs(listener: FakeListener, runner: Runner) -> None:
    os.mkfifo(runner.folder / "gate")
    process = runner.start(
        f"mkdir -p $NNI_SYS_DIR/outbox/node; {report(1)}; echo 2 >> $NNI_SYS_DIR/outbox/node/a; echo first; "
        f"read line < {runner.folder}/gate; {report(3)}"
    )
    listener.wait_for(lambda: listener.values() == [1] and listener.lines.get("outbox/node/a") == ["2"])
    listener.wait_for(lambda: listener.logs.get("stdout") == b"first\n")
    (runner.folder / "gate").write_text("go\n")
    assert runner.wait(process).code == 0
    assert listener.values() == [1, 3]


def test_other_processes_of_a_job_forward_their_logs_alone(listener: FakeListener, runner: Runner) -> None:
    ended = runner.run(f"{report(1)}; echo out", **{protocol.ENV_REPORTER: "0"})
    assert ended.code == 0
    assert listener.lines == {}
    assert listener.statuses == []
    assert listener.logs == {f"{listener.versions[0]['host']}stdout": b"out\n"}


def test_the_sdk_s_log_is_forwarded_from_the_output_folder(listener: FakeListener, runner: Runner) -> None:
    runner.run("echo log >> $NNI_OUTPUT_DIR/trial.log", **{protocol.ENV_OUTPUT_DIR: str(runner.folder / "output")})
    assert listener.logs == {"trial.log": b"log\n"}


def test_non_text_bytes_keep_their_offsets(listener: FakeListener, runner: Runner) -> None:
    runner.run("printf 'a\\xff\\xc3'; printf '\\xa4 \\xe2\\x82'")
    assert listener.logs["stdout"] == "a?ä ??".encode()


def test_folder_has_evidence_if_manager_is_unreachable(runner: Runner) -> None:
    _prepare_pull(runner)
    ended = runner.run(
        f"{report(1)}; echo out; exit 4", **{protocol.ENV_CHANNEL: protocol.PULL, protocol.ENV_TOKEN: ""}
    )
    assert ended.code == 4
    assert ended.stdout == "out\n"
    assert runner.outbox_values() == [1]
    assert json.loads((runner.system_dir / protocol.RUNNER_FILE).read_text())["channel"] == protocol.PULL
    assert json.loads((runner.system_dir / protocol.EXIT_FILE).read_text())["exit_code"] == 4


def test_end_lists_sizes_of_files(runner: Runner) -> None:
    """Storage may show the last file first: the sizes tell the reader what is missing."""
    _prepare_pull(runner)
    more = 'echo "{}" > $NNI_SYS_DIR/outbox/second; mkdir $NNI_SYS_DIR/outbox/d; echo > "$NNI_SYS_DIR/outbox/d/a\\\\b"'
    runner.run(f"{report(1)}; {more}; echo out; echo error >&2", **PULL)
    word = json.loads((runner.system_dir / protocol.EXIT_FILE).read_text())
    main = (runner.system_dir / protocol.MAIN_OUTBOX).stat().st_size
    assert word["outboxes"] == {protocol.MAIN_OUTBOX: main, "outbox/second": 3, "outbox/d/a\\\\b": 1}
    assert word["logs"] == {"stdout": 4, "stderr": 6, "trial.log": 0}
    greeting = json.loads((runner.system_dir / protocol.RUNNER_FILE).read_text())
    assert word["container"] == greeting["container"] and greeting["outboxes"] == {}


def test_a_folder_that_another_container_took_over_is_left_to_it(runner: Runner) -> None:
    _prepare_pull(runner)
    go_on = runner.folder / "go_on"
    os.mkfifo(go_on)
    first = runner.start(f"{report(1)}; read line < {go_on}; exit 3", **PULL)
    until((runner.system_dir / protocol.MAIN_OUTBOX).exists)
    second = runner.run(f"{report(2)}", **PULL)
    assert second.code == 0
    word = json.loads((runner.system_dir / protocol.EXIT_FILE).read_text())
    greeting = json.loads((runner.system_dir / protocol.RUNNER_FILE).read_text())
    assert greeting["outboxes"] == {protocol.MAIN_OUTBOX: 37}, "what it found"
    ended = runner.wait(first)  # no signal to go on
    assert ended.code == protocol.EXIT_FENCED and "has taken over its folder" in ended.stderr
    assert json.loads((runner.system_dir / protocol.EXIT_FILE).read_text()) == word
    assert (word["container"], word["exit_code"]) == (greeting["container"], 0)


def test_torn_line_of_an_earlier_container_is_ended(listener: FakeListener, runner: Runner) -> None:
    main = runner.system_dir / protocol.MAIN_OUTBOX
    main.parent.mkdir(parents=True)
    main.write_text('{"type": "intermed')
    (runner.system_dir / "outbox" / "7-0.jsonl").write_text('{"type": "intermediate", "value": 0}\n')
    assert runner.run(report(1)).code == 0
    assert listener.lines[protocol.MAIN_OUTBOX] == ['{"type": "intermed', '{"type": "intermediate", "value": 1}']
    assert listener.values("outbox/7-0.jsonl") == [0]


def test_each_container_has_an_identity_and_shows_it(listener: FakeListener, runner: Runner) -> None:
    runner.run(report(1))
    runner.run(report(2))
    first, second = (version["container"] for version in listener.versions)
    assert first != second and CONTAINER.fullmatch(first) and CONTAINER.fullmatch(second)
    assert [version["outboxes"] for version in listener.versions] == [{}, {protocol.MAIN_OUTBOX: 37}]
    assert dict.fromkeys(listener.containers) == {first: None, second: None}
    runner.run("true", **{protocol.ENV_REPORTER: "0"})
    assert listener.versions[-1]["container"] == "" and listener.containers[-1] is None, "logging alone registers none"


def test_push_or_exec_runner_chooses_a_channel(listener: FakeListener, runner: Runner) -> None:
    _prepare_pull(runner)
    listener.close()
    ended = runner.run("exit 4", **{protocol.ENV_DRAIN_S: "0.2"})
    assert ended.code == 4
    assert "where the manager reads them" in ended.stderr
    assert json.loads((runner.system_dir / protocol.RUNNER_FILE).read_text())["version"] == protocol.VERSION


def test_unfilled_container_has_no_data(runner: Runner) -> None:
    ended = runner.run("true", **{protocol.ENV_CHANNEL: protocol.PULL})
    assert ended.code == protocol.EXIT_USAGE
    assert "mount the storage" in ended.stderr


def test_archive_runs_with_empty_directory_and_environment(listener: FakeListener, runner: Runner) -> None:
    (runner.folder / "empty").mkdir()
    (runner.folder / "runner.pyz").write_bytes(runner_archive())
    del runner.environment["PYTHONPATH"], runner.environment["PATH"], runner.environment[protocol.ENV_DRAIN_S]
    # -S: packages installed for these tests are hidden
    code = "import nni; nni.report_final_result(nni.get_next_parameter()['lr']); print(nni.__file__)"
    runner.environment[protocol.ENV_COMMAND] = f'cd {runner.folder}/empty; {sys.executable} -S -c "{code}"'
    settings = [f"{name}={value}" for name, value in runner.environment.items()]
    runner.program = ["/usr/bin/env", "-i", *settings, sys.executable, "-S", str(runner.folder / "runner.pyz")]
    ended = runner.run(runner.environment[protocol.ENV_COMMAND])
    assert (ended.code, ended.stderr) == (0, "")
    ((outbox, lines),) = listener.lines.items()
    assert outbox.startswith("outbox/")
    assert [json.loads(line) for line in lines] == [{"type": "final", "value": 0.1}]
    assert not Path(ended.stdout.strip()).exists(), "what was unpacked is removed"
    assert not any((runner.folder / "empty").iterdir())


def test_restarted_runner_continues(listener: FakeListener, runner: Runner) -> None:
    runner.run(f"{report(1)}; echo one; exit 1")
    runner.run(f"{report(2)}; echo two")
    assert listener.values() == [1, 2]
    assert listener.logs["stdout"] == b"one\ntwo\n"


def test_restarted_runner_adds_to_stored_results(listener: FakeListener, runner: Runner) -> None:
    runner.run(f"{report(1)}; echo the first output; exit 1")
    runner.system_dir.rename(runner.folder / "gone")
    runner.run(f"{report(2)}; echo two")
    assert listener.values() == [1, 2]
    assert listener.logs["stdout"] == b"the first output\ntwo\n"
    assert listener.statuses[-1]["outboxes"] == listener.sizes


@pytest.mark.parametrize("removed", [protocol.OUTBOX_FOLDER, protocol.MAIN_OUTBOX])
def test_outbox_removed_before_the_end_is_said(listener: FakeListener, runner: Runner, removed: str) -> None:
    gate = runner.folder / "gate"
    process = runner.start(f"{report(1)}; until [ -e {gate} ]; do sleep 0.02; done; rm -r $NNI_SYS_DIR/{removed}")
    listener.wait_for(lambda: listener.values() == [1])
    gate.touch()
    assert runner.wait(process).code == 0
    (sentence,) = listener.statuses[-1]["undelivered"]
    assert f"{removed} is gone" in sentence
    assert sentence == json.loads((runner.system_dir / protocol.EXIT_FILE).read_text())["gone"]


def test_output_into_trials_own_file_is_not_copied(listener: FakeListener, runner: Runner) -> None:
    runner.system_dir.mkdir()
    program = " ".join(runner.program)
    runner.program = ["/bin/sh", "-c", f"exec {program} > nni/stdout"]
    assert runner.run("echo once").code == 0
    assert listener.logs["stdout"] == b"once\n"


def test_stuck_output_reader_does_not_delay_results(listener: FakeListener, runner: Runner) -> None:
    process = runner.start(f"head -c 3000000 /dev/zero; {metrics(10)}; exit 3")
    listener.wait_for(lambda: listener.values() == list(range(10)))
    listener.wait_for(lambda: any(status["event"] == "exited" for status in listener.statuses))
    assert runner.wait(process).stdout == "\0" * 3_000_000


PULL = {protocol.ENV_CHANNEL: protocol.PULL, protocol.ENV_TOKEN: ""}


def _prepare_pull(runner: Runner) -> None:
    (runner.system_dir / "code").mkdir(parents=True)
    (runner.system_dir / protocol.PARAMETER_FILE).write_text("{}")


def _archive(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()
