"""Results and ends of trials in the API, and changes while trials run."""

from __future__ import annotations

import json
import math
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.acceptance import trial_notes
from tests.live_daemon import PYTHON, Daemon

pytestmark = [pytest.mark.acceptance, pytest.mark.group("results")]


class Bench:
    """One experiment at a time, with helpers."""

    def __init__(self, daemon: Daemon, code: Path, root: Path) -> None:
        self.daemon = daemon
        self.code = code
        self.notes, self.hosts, self.gates = root / "trials.jsonl", root / "hosts", root / "gates"
        self.hosts.mkdir()
        self.gates.mkdir()
        self.id = ""

    def start(self, command: str, **more: Any) -> None:
        """`command`: of the trials; one trial unless `more` changes that."""
        base: dict[str, Any] = {
            "searchSpace": {"x": {"_type": "choice", "_value": [1]}},
            "trialCodeDirectory": ".",
            "trialConcurrency": 1,
            "maxTrialNumber": 1,
            "tuner": {"name": "Random", "classArgs": {"optimize_mode": "maximize"}},
            "trainingService": {"platform": "local"},
            "gracePeriod": "1s",
        }
        environment = {"GATES": str(self.gates), "TRIAL_NOTES": str(self.notes), "PIDS": str(self.gates / "pids")}
        self.id = self.daemon.create(base | {"trialCommand": command} | more, self.code, environment)

    def start_code(self, code: str, **more: Any) -> None:
        """`code`: Python code of the trials, after `import nni`."""
        first = 'import os, sys\nsys.path.insert(0, os.environ["PYTHONPATH"].rsplit(":", 1)[-1])\nimport nni\n'
        (self.code / "snippet.py").write_text(first + code)
        self.start(f"{PYTHON} snippet.py", **more)

    def run(self, command: str, **more: Any) -> dict[str, Any]:
        """The only trial, after the experiment has finished."""
        self.start(command, **more)
        return self.end()

    def run_code(self, code: str, **more: Any) -> dict[str, Any]:
        self.start_code(code, **more)
        return self.end()

    def end(self) -> dict[str, Any]:
        self.daemon.wait(self.id, "DONE")
        (trial,) = self.trials()
        return self.trial(trial["id"])

    def close(self) -> None:
        """Stop the trials, to free the processors for the next test."""
        if self.id:
            self.call("POST", "/stop")

    def open_gate(self, *names: object) -> None:
        for name in names:
            (self.gates / str(name)).touch()

    def call(self, method: str, path: str = "", body: Any = None) -> Any:
        return self.daemon.call(method, f"/experiments/{self.id}{path}", json=body)

    def trials(self) -> list[dict[str, Any]]:
        return list(self.call("GET", "/trials?limit=1000")["trials"])

    def trial(self, id_: str) -> dict[str, Any]:
        return dict(self.call("GET", f"/trials/{id_}"))

    def results(self, type_: str = "") -> list[Any]:
        """All reported values in the order they were stored."""
        found: list[Any] = []
        after = 0
        while page := self.call("GET", f"/metrics?limit=10000&after={after}{type_ and f'&type={type_}'}")["metrics"]:
            found += [json.loads(metric["result"]) for metric in page]
            after = page[-1]["id"]
        return found

    def wait_for_count(self, **counts: int) -> dict[str, Any]:
        return self.daemon.wait_for(
            self.id, lambda state: all(state["counts"].get(status, 0) == count for status, count in counts.items())
        )

    def log(self) -> str:
        return (self.daemon.data / self.id / "log" / "nnimanager.log").read_text()


@pytest.fixture
def bench(shared: Daemon, code: Path, tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(shared, code, tmp_path)
    yield bench
    bench.close()


# Values


def test_nan_and_infinity_are_stored_and_shown(bench: Bench) -> None:
    values = [math.nan, math.inf, -math.inf, 1.5]
    trial = bench.run_code(
        "for value in ('nan', 'inf', '-inf', '1.5'):\n    nni.report_intermediate_result(float(value))\n"
        "nni.report_final_result({'default': float('nan'), 'loss': float('inf')})\n"
    )
    assert repr(bench.results("PERIODICAL")) == repr(values)
    metrics = bench.call("GET", "/metrics")["metrics"]
    assert [metric["value"] for metric in metrics] == [None, None, None, 1.5, None]
    assert [metric["result"] for metric in metrics[:3]] == ["NaN", "Infinity", "-Infinity"]
    assert (trial["status"], trial["finalValue"], trial["lastValue"]) == ("SUCCEEDED", None, 1.5)
    assert repr(json.loads(trial["finalResult"])) == repr({"default": math.nan, "loss": math.inf})
    assert bench.daemon.status(bench.id)["best"] is None


def test_infinite_final_result_is_stored_and_shown(bench: Bench) -> None:
    trial = bench.run_code("nni.report_final_result(float('-inf'))")
    assert (trial["finalValue"], trial["finalResult"]) == (None, "-Infinity")
    assert trial["message"] == "its final result is infinite, which is never the best"
    assert bench.daemon.status(bench.id)["best"] is None


def test_broken_line_is_named_and_the_others_count(bench: Bench) -> None:
    lines = [
        '{"type": "intermediate", "value": 1}',
        '{"type": "intermediate", "val',
        '{"type": "guess", "value": 2}',
        "[]",
        '{"type": "intermediate", "value": 3}',
        '{"type": "final", "value": 4}',
    ]
    (bench.code / "lines").write_text("\n".join(lines) + "\n")
    trial = bench.run('cat lines >> "$NNI_OUTBOX"')
    assert bench.results() == [1, 3, 4]
    assert (trial["status"], trial["finalValue"], trial["intermediates"]) == ("SUCCEEDED", 4, 2)
    dropped = [line for line in bench.log().splitlines() if "and all later ones like it" in line]
    assert len(dropped) == 3
    assert all("outbox/main.jsonl" in line and trial["id"] in line for line in dropped)
    assert all(any(text in line for line in dropped) for text in lines[1:4])
    assert trial["message"].startswith("a line of outbox/main.jsonl was dropped: line 2 is not a metric (")
    assert lines[1] in trial["message"]
    assert trial["message"].endswith("; dropped lines that are not results: 3, see nnimanager.log")


def test_thousands_of_outbox_files_cost_no_result(bench: Bench) -> None:
    """Known outboxes and the main one are read; skipped files are reported."""
    (bench.code / "many.py").write_text(
        "import os\nfolder = os.path.dirname(os.environ['NNI_OUTBOX'])\n"
        "for number in range(8000):\n    open(os.path.join(folder, 'z%d' % number), 'w').close()\n"
        "with open(os.environ['NNI_OUTBOX'], 'a') as file:\n"
        '    file.write(\'{"type": "intermediate", "value": 1}\\n{"type": "final", "value": 2}\\n\')\n'
    )
    trial = bench.run(f"{PYTHON} many.py")
    assert (trial["status"], trial["finalValue"], trial["intermediates"]) == ("SUCCEEDED", 2.0, 1)
    assert trial["message"] == (
        "some files in outbox/ were not read: there are more than the limit (5000), or reading them failed"
    )


def test_metrics_file_of_older_sdks_is_read(bench: Bench) -> None:
    trial = bench.run_code(
        "import json\n"
        "def frame(type_, value):\n"
        "    text = json.dumps({'parameter_id': 0, 'trial_job_id': nni.get_trial_id(), 'type': type_, 'sequence': 0,"
        " 'value': json.dumps(value)}) + '\\n'\n"
        "    return f'ME{len(text):06d}{text}'\n"
        "folder = os.path.join(os.environ['NNI_SYS_DIR'], '.nni')\n"
        "os.makedirs(folder, exist_ok=True)\n"
        "with open(os.path.join(folder, 'metrics'), 'a') as file:\n"
        "    for value in (0.1, {'default': 0.2}, float('nan')):\n"
        "        file.write(frame('PERIODICAL', value))\n"
        "    file.write(frame('FINAL', 0.4))\n"
    )
    assert repr(bench.results()) == repr([0.1, {"default": 0.2}, math.nan, 0.4])
    assert (trial["finalValue"], trial["intermediates"]) == (0.4, 3)
    assert {metric["outbox"] for metric in bench.call("GET", "/metrics")["metrics"]} == {".nni/metrics"}


def test_every_process_of_a_trial_may_report(bench: Bench) -> None:
    trial = bench.run_code(
        "for worker in range(4):\n"
        "    if os.fork() == 0:\n"
        "        for step in range(50):\n"
        "            nni.report_intermediate_result(worker * 1000 + step)\n"
        "        os._exit(0)\n"
        "for worker in range(4):\n"
        "    os.wait()\n"
        "nni.report_final_result(1)\n"
    )
    results = bench.results("PERIODICAL")
    for worker in range(4):
        assert [value for value in results if value // 1000 == worker] == [worker * 1000 + step for step in range(50)]
    assert (len(results), trial["intermediates"], trial["finalValue"]) == (200, 200, 1)
    metrics = bench.call("GET", "/metrics")["metrics"]
    assert len({metric["outbox"] for metric in metrics}) == 5
    assert sorted(m["sequence"] for m in metrics if m["type"] == "PERIODICAL") == list(range(200))


def test_outbox_with_a_non_utf8_name_is_read(bench: Bench) -> None:
    odd = bench.run('printf \'{"type":"final","value":3}\\n\' > $NNI_SYS_DIR/outbox/$(printf \'caf\\351\')')
    assert (odd["status"], odd["finalValue"]) == ("SUCCEEDED", 3.0)
    assert [metric["outbox"] for metric in bench.call("GET", "/metrics")["metrics"]] == [r"outbox/caf\xe9"]


def test_too_long_line_is_named_on_its_trial(bench: Bench) -> None:
    (bench.code / "long.py").write_text(
        "import os\nwith open(os.environ['NNI_OUTBOX'], 'a') as file:\n"
        '    file.write(\'{"type": "intermediate", "value": "%s"}\\n\' % ("x" * 5_000_000))\n'
        '    file.write(\'{"type": "final", "value": 2}\\n\')\n'
    )
    trial = bench.run(f"{PYTHON} long.py")
    assert (trial["status"], trial["finalValue"]) == ("SUCCEEDED", 2.0)
    assert trial["message"] == (
        "a result of outbox/main.jsonl was dropped: it is longer than the maximum of 4194304 bytes"
        "; dropped lines that are not results: 1, see nnimanager.log"
    )


def test_line_of_a_megabyte_is_stored(bench: Bench) -> None:
    trial = bench.run_code(
        "nni.report_intermediate_result({'default': 7, 'weights': 'w' * 999_900})\n"
        "try:\n"
        "    nni.report_intermediate_result('w' * 1_000_000)\n"
        "except ValueError as error:\n"
        "    nni.report_intermediate_result(str(error))\n"
        "nni.report_final_result(8)\n"
    )
    big, refusal, final = bench.results()
    assert (big["default"], len(big["weights"]), final) == (7, 999_900, 8)
    assert "at most 1000000 are allowed" in refusal
    assert trial["status"] == "SUCCEEDED"


def test_hundred_thousand_results_arrive_complete_and_in_order(bench: Bench) -> None:
    count = 100_000
    trial = bench.run_code(
        f"for step in range({count}):\n    nni.report_intermediate_result(step)\nnni.report_final_result(-1)\n"
    )
    assert bench.results("PERIODICAL") == list(range(count))
    assert bench.results("FINAL") == [-1]
    assert (trial["intermediates"], trial["lastValue"], trial["finalValue"]) == (count, count - 1, -1)


# Ends


def test_missing_command_fails_the_trial(bench: Bench) -> None:
    trial = bench.run("surely-no-such-command --epochs 3")
    (attempt,) = trial["attempts"]
    assert (trial["status"], trial["reason"], trial["message"]) == ("FAILED", "USER_CODE", "exit code 127")
    assert (attempt["state"], attempt["exitCode"], attempt["signal"]) == ("FAILED", 127, None)
    assert "surely-no-such-command" in attempt["stderrTail"]
    assert attempt["stderrTail"].strip() in bench.log()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_death_by_signal_is_named(bench: Bench, number: signal.Signals) -> None:
    trial = bench.run_code(f"nni.report_intermediate_result(1)\nos.kill(os.getpid(), {int(number)})\n")
    (attempt,) = trial["attempts"]
    assert (trial["status"], trial["reason"]) == ("FAILED", "USER_CODE")
    assert (attempt["exitCode"], attempt["signal"]) == (None, number)
    assert number.name in trial["message"]
    assert bench.results() == [1]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("raise MemoryError('Unable to allocate 2 TiB')", "OUT_OF_MEMORY"),
        ("raise RuntimeError('CUDA out of memory. Tried to allocate 20 MiB')", "GPU_OUT_OF_MEMORY"),
    ],
)
def test_out_of_memory_is_recognised(bench: Bench, words: str, reason: str) -> None:
    trial = bench.run_code(words)
    assert (trial["status"], trial["reason"], trial["attempts"][0]["exitCode"]) == ("FAILED", reason, 1)
    assert words.split("'")[1] in trial["attempts"][0]["stderrTail"]


def test_trial_over_its_duration_is_stopped_early(bench: Bench) -> None:
    trial = bench.run('echo \'{"type": "intermediate", "value": 5}\' >> $NNI_OUTBOX; sleep 600', maxTrialDuration="1s")
    assert (trial["status"], trial["reason"], trial["stopRequest"]) == ("EARLY_STOPPED", "TIMEOUT", "TIMEOUT")
    assert 1000 <= trial["endedMs"] - trial["startedMs"] < 5000
    assert bench.results() == [5]


def test_killed_trial_is_cancelled_and_keeps_its_results(bench: Bench) -> None:
    bench.start(f"{PYTHON} gated.py")
    bench.daemon.wait_for(bench.id, lambda _: bench.trials() and bench.trials()[0]["intermediates"] == 1)
    (trial,) = bench.trials()
    bench.call("POST", f"/trials/{trial['id']}/kill")
    ended = bench.end()
    assert (ended["status"], ended["reason"]) == ("USER_CANCELED", "USER_REQUEST")
    assert (ended["intermediates"], ended["finalResult"]) == (1, None)
    bench.call("POST", f"/trials/{trial['id']}/kill")
    assert bench.trial(trial["id"]) == ended, "killing what has ended changes nothing"


def test_waiting_trial_is_cancelled_at_once(bench: Bench) -> None:
    bench.start(f"{PYTHON} gated.py", maxTrialNumber=2)
    bench.wait_for_count(RUNNING=1)
    added = bench.call("POST", "/trials", {"parameters": {"x": 3}})
    bench.wait_for_count(RUNNING=1, WAITING=1)
    assert bench.trial(added["id"])["wait"]["code"] == "CONCURRENCY"
    bench.call("POST", f"/trials/{added['id']}/kill")
    assert bench.wait_for_count(USER_CANCELED=1)["counts"]["RUNNING"] == 1
    assert bench.trial(added["id"])["attempts"] == []


def test_failed_code_is_retried_as_configured(bench: Bench) -> None:
    trial = bench.run_code(
        "name = os.path.basename(os.environ['NNI_SYS_DIR'])\n"
        "nni.report_intermediate_result(name)\n"
        "sys.exit(0 if name.endswith('-3') else 'not yet')\n",
        maxTrialRetries=2,
    )
    id_ = trial["id"]
    assert (trial["status"], trial["attempt"], trial["intermediates"]) == ("SUCCEEDED", 3, 1)
    assert [one["givenUp"] for one in trial["attempts"]] == ["USER_CODE", "USER_CODE", None]
    assert ["not yet" in one["stderrTail"] for one in trial["attempts"]] == [True, True, False]
    assert bench.results() == [id_, f"{id_}-2", f"{id_}-3"]


def test_retries_are_limited(bench: Bench) -> None:
    trial = bench.run("exit 3", maxTrialRetries=1)
    assert (trial["status"], trial["attempt"], trial["message"]) == ("FAILED", 2, "exit code 3")


def test_first_trials_failing_alike_cause_a_hold(bench: Bench) -> None:
    bench.start("exit 3", maxTrialNumber=50)
    state = bench.daemon.wait_for(bench.id, lambda state: state["hold"])
    assert (state["hold"]["code"], state["counts"]) == ("SAME_FAILURE", {"FAILED": 5})
    bench.call("PATCH", "", {"maxTrialNumber": 7})
    bench.call("POST", "/resume")
    assert bench.daemon.wait(bench.id, "DONE")["counts"] == {"FAILED": 7}


def test_first_unusable_results_cause_a_hold_until_resume(bench: Bench) -> None:
    (bench.code / "wrong.py").write_text(
        "import nni\nnni.get_next_parameter()\nnni.report_final_result({'acc': 0.9})\n"
    )
    tuner = {"name": "TPE", "classArgs": {"optimize_mode": "maximize"}}
    bench.start(f"{PYTHON} wrong.py", maxTrialNumber=40, maxUnusableResults=3, trialConcurrency=1, tuner=tuner)
    state = bench.daemon.wait_for(bench.id, lambda state: state["hold"])
    assert (state["hold"]["code"], state["counts"]) == ("NO_USABLE_RESULT", {"SUCCEEDED": 3})
    fix = "results are {acc: 0.9}: report the key `default`, or set objectives: {acc: maximize}"
    assert fix in state["hold"]["sentence"]
    bench.call("POST", "/resume")
    state = bench.daemon.wait_for(bench.id, lambda state: state["hold"] and state["counts"]["SUCCEEDED"] > 3)
    assert state["counts"] == {"SUCCEEDED": 6}
    (bench.code / "wrong.py").write_text("import nni\nnni.get_next_parameter()\nnni.report_final_result(0.9)\n")
    bench.call("PATCH", "", {"maxTrialNumber": 10})
    bench.call("POST", "/resume")
    assert bench.daemon.wait(bench.id, "DONE")["counts"] == {"SUCCEEDED": 10}


@pytest.mark.parametrize(
    ("result", "tuner", "words"),
    [
        ("float('nan')", "TPE", "results are NaN: NaN and infinity are never the best"),
        ("'high'", "Random", 'results are "high": report a number, not text'),
    ],
)
def test_results_without_influence_on_the_search_only_warn(bench: Bench, result: str, tuner: str, words: str) -> None:
    (bench.code / "odd.py").write_text(f"import nni\nnni.get_next_parameter()\nnni.report_final_result({result})\n")
    section = {"name": tuner, "classArgs": {"optimize_mode": "maximize"}}
    bench.start(f"{PYTHON} odd.py", maxTrialNumber=7, trialConcurrency=2, tuner=section)
    state = bench.daemon.wait(bench.id, "DONE")
    assert (state["hold"], state["counts"]) == (None, {"SUCCEEDED": 7})
    [warning] = [one for one in state["warnings"] if one["code"] == "NO_USABLE_RESULT"]
    assert words in warning["message"]


def test_experiment_closed_after_its_end_is_ended_as_done(bench: Bench) -> None:
    def ended_as() -> list[object]:
        state = bench.call("GET", "")
        [listed] = [one for one in bench.daemon.call("GET", "/experiments")["experiments"] if one["id"] == bench.id]
        assert state["status"] == listed["status"] == "STOPPED"
        return [state["endedAs"], listed["endedAs"]]

    bench.start("true", maxTrialNumber=1)
    assert bench.daemon.wait(bench.id, "DONE")["endedAs"] is None
    bench.call("POST", "/stop")
    assert ended_as() == ["DONE", "DONE"]
    bench.call("POST", "/resume")
    bench.call("PATCH", "", {"maxTrialNumber": 1000, "trialConcurrency": 1})
    assert bench.daemon.wait(bench.id, "RUNNING")["endedAs"] is None
    bench.call("POST", "/stop")
    assert ended_as() == [None, None]


def test_same_failure_in_a_row_causes_a_hold_after_a_success(bench: Bench) -> None:
    (bench.code / "wrong.py").write_text(
        "import nni, os\nnni.get_next_parameter()\nnumber = int(os.environ['NNI_TRIAL_SEQ_ID'])\n"
        "if number:\n    raise ValueError(f'no rate {number} in {os.getcwd()}')\nnni.report_final_result(1)\n"
    )
    bench.start(f"{PYTHON} wrong.py", maxTrialNumber=40, maxSameFailures=6, trialConcurrency=1)
    state = bench.daemon.wait_for(bench.id, lambda state: state["hold"])
    assert (state["hold"]["code"], state["counts"]) == ("SAME_FAILURE", {"SUCCEEDED": 1, "FAILED": 6})
    assert "6 trials in a row failed in the same way" in state["hold"]["sentence"]
    assert "its stderr says: ValueError: no rate 6 in" in state["hold"]["sentence"]
    common = state["commonFailure"]
    assert common["trials"] == 6 and "exit code 1: ValueError: no rate 6 in" in common["sentence"]
    bench.call("POST", "/resume")
    state = bench.daemon.wait_for(bench.id, lambda state: state["hold"] and state["counts"]["FAILED"] > 6)
    assert state["counts"] == {"SUCCEEDED": 1, "FAILED": 12}


def test_missing_code_directory_causes_a_hold(bench: Bench) -> None:
    bench.start("sleep 0.2", maxTrialNumber=40, trialConcurrency=1)
    bench.daemon.wait_for(bench.id, lambda state: state["counts"].get("SUCCEEDED"))
    bench.code.rename(bench.code.with_name("elsewhere"))
    state = bench.daemon.wait_for(bench.id, lambda state: state["hold"])
    assert (state["hold"]["code"], state["counts"]["FAILED"]) == ("SUBMIT_REJECTED", 1)
    assert str(bench.code) in state["hold"]["sentence"]


def test_killed_trial_leaves_no_process(bench: Bench) -> None:
    bench.start(f"{PYTHON} forking.py")
    bench.wait_for_count(RUNNING=1)
    pids = bench.gates / "pids"
    (trial,) = bench.trials()
    bench.daemon.wait_for(bench.id, lambda _: True)
    _wait_for_lines(pids, 3)
    bench.call("POST", f"/trials/{trial['id']}/kill")
    assert bench.wait_for_count(USER_CANCELED=1)
    assert _alive(pids) == []
    assert bench.trial(trial["id"])["attempts"][0]["signal"] == signal.SIGKILL


def test_finished_trial_leaves_no_process(bench: Bench) -> None:
    trial = bench.run(f"{PYTHON} forking.py leave")
    assert trial["status"] == "SUCCEEDED"
    assert len((bench.gates / "pids").read_text().splitlines()) == 3
    assert _alive(bench.gates / "pids") == []


def _wait_for_lines(path: Path, count: int) -> None:
    deadline = time.monotonic() + 20
    while not path.exists() or len(path.read_text().splitlines()) < count:
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def _alive(pids: Path) -> list[str]:
    """Lines of processes that live."""
    return [line for line in pids.read_text().splitlines() if psutil.pid_exists(int(line.split()[-1]))]


# Changes


def test_user_adds_a_trial_with_parameters(bench: Bench) -> None:
    bench.start(f"{PYTHON} gated.py", maxTrialNumber=3)
    bench.wait_for_count(RUNNING=1)
    added = bench.call("POST", "/trials", {"parameters": {"x": 21, "why": "a hunch"}})
    assert added["sequenceId"] == 1
    bench.open_gate("all")
    bench.daemon.wait(bench.id, "DONE")
    trial = bench.trial(added["id"])
    assert (trial["parameterSource"], trial["parameterId"]) == ("customized", None)
    assert (trial["parameters"], trial["finalValue"]) == ({"x": 21, "why": "a hunch"}, 42)
    assert [one["parameterSource"] for one in bench.trials()] == ["algorithm", "customized", "algorithm"]
    with bench.daemon.client() as client:
        refused = client.post(f"/api/v1/experiments/{bench.id}/trials", json={"parameters": {"x": 1}})
    assert (refused.status_code, "maxTrialNumber (3) is reached" in refused.text) == (409, True)


def test_concurrency_is_raised_and_lowered(bench: Bench) -> None:
    bench.start(f"{PYTHON} gated.py", maxTrialNumber=12)
    bench.wait_for_count(RUNNING=1)
    bench.call("PATCH", "", {"trialConcurrency": 4})
    assert bench.wait_for_count(RUNNING=4)["trialConcurrency"] == 4
    bench.call("PATCH", "", {"trialConcurrency": 2})
    bench.open_gate(0, 1)
    state = bench.wait_for_count(SUCCEEDED=2)
    assert (state["counts"], state["trialsMade"]) == ({"SUCCEEDED": 2, "RUNNING": 2}, 4), (
        "no running trial is stopped for it"
    )
    bench.open_gate(2)
    state = bench.daemon.wait_for(bench.id, lambda state: state["trialsMade"] == 5)
    bench.wait_for_count(SUCCEEDED=3, RUNNING=2)
    bench.open_gate("all")
    assert bench.daemon.wait(bench.id, "DONE")["counts"] == {"SUCCEEDED": 12}
    times = [(one["startedMs"], one["endedMs"]) for one in bench.trials() if one["sequenceId"] >= 4]
    assert max(sum(start <= moment < end for start, end in times) for moment, _ in times) <= 2


def test_raised_limit_restarts_a_done_experiment(bench: Bench) -> None:
    bench.open_gate("all")
    bench.run(f"{PYTHON} gated.py")
    bench.call("PATCH", "", {"maxTrialNumber": 3})
    state = bench.daemon.wait_for(bench.id, lambda s: s["status"] == "DONE" and s["trialsMade"] == 3)
    assert state["counts"] == {"SUCCEEDED": 3}
    bench.call("PATCH", "", {"maxTrialNumber": 2})
    assert bench.daemon.wait(bench.id, "DONE")["trialsMade"] == 3


def test_changed_search_space_applies_to_new_trials(bench: Bench) -> None:
    bench.start(f"{PYTHON} gated.py", maxTrialNumber=8, trialConcurrency=2)
    bench.wait_for_count(RUNNING=2)
    bench.call("PATCH", "", {"searchSpace": {"x": {"_type": "choice", "_value": [100, 200]}}})
    bench.open_gate("all")
    bench.daemon.wait(bench.id, "DONE")
    values = [one["parameters"]["x"] for one in bench.trials()]
    assert values[:2] == [1, 1]
    assert set(values[2:]) <= {100, 200}
    with bench.daemon.client() as client:
        refused = client.patch(f"/api/v1/experiments/{bench.id}", json={"searchSpace": {"x": {"_type": "guess"}}})
    assert (refused.status_code, "searchSpace" in refused.text) == (400, True)


def test_experiment_duration_limit_is_set_while_it_runs(bench: Bench) -> None:
    bench.start(f"{PYTHON} gated.py", maxTrialNumber=50, trialConcurrency=2)
    bench.wait_for_count(RUNNING=2)
    bench.call("PATCH", "", {"maxExperimentDuration": "1s"})
    state = bench.daemon.wait(bench.id, "NO_MORE_TRIAL")
    assert state["counts"] == {"RUNNING": 2}, "running trials go on"
    bench.open_gate("all")
    assert bench.daemon.wait(bench.id, "DONE")["counts"] == {"SUCCEEDED": 2}
    bench.call("PATCH", "", {"maxExperimentDuration": None, "maxTrialNumber": 4})
    state = bench.daemon.wait_for(bench.id, lambda s: s["status"] == "DONE" and s["trialsMade"] == 4)
    assert state["counts"] == {"SUCCEEDED": 4}


def test_trial_duration_limit_is_set_while_one_runs(bench: Bench) -> None:
    bench.start(f"{PYTHON} gated.py")
    bench.wait_for_count(RUNNING=1)
    bench.call("PATCH", "", {"maxTrialDuration": "1s"})
    ended = bench.end()
    assert (ended["status"], ended["reason"]) == ("EARLY_STOPPED", "TIMEOUT")


def test_resume_reruns_trials_that_the_stop_ended(bench: Bench) -> None:
    config = trial_notes.config(
        trials=6, steps=0, pause_s=0, tuner=trial_notes.noting_tuner(bench.hosts), trialConcurrency=2
    )
    bench.start(
        f"{PYTHON} gated.py", **{k: config[k] for k in ("searchSpace", "tuner", "maxTrialNumber")}, trialConcurrency=2
    )
    bench.open_gate(0, 1)
    bench.wait_for_count(SUCCEEDED=2, RUNNING=2)
    before = {one["id"]: one["parameters"] for one in bench.trials()}
    bench.call("POST", "/stop")
    assert [one["status"] for one in bench.trials()] == ["SUCCEEDED"] * 2 + ["USER_CANCELED"] * 2
    assert {one["reason"] for one in bench.trials()[2:]} == {"EXPERIMENT_STOPPED"}
    bench.open_gate("all")
    bench.call("POST", "/resume")
    assert bench.daemon.wait(bench.id, "DONE")["counts"] == {"SUCCEEDED": 6}
    after = bench.trials()
    assert {one["id"]: one["parameters"] for one in after if one["sequenceId"] < 4} == before
    assert [one["attempt"] for one in after] == [1, 1, 2, 2, 1, 1]
    trial_notes.check_results(bench.daemon, bench.id, bench.notes)
    trial_notes.check_tuners(bench.hosts, 6)


@pytest.mark.parametrize("second", ["0.25", "0.2512345", "0.25e"], ids=["shorter", "longer", "nothing usable"])
def test_overwritten_outbox_is_reported_on_its_trial(bench: Bench, second: str) -> None:
    """`>` instead of `>>`, the most common mistake in a shell."""
    first, last = '{"type":"intermediate","value":0.5}', f'{{"type":"final","value":{second}}}'
    gate = bench.gates / "gate"
    bench.start(f"echo '{first}' > $NNI_OUTBOX; until [ -e {gate} ]; do sleep 0.02; done; echo '{last}' > $NNI_OUTBOX")
    bench.daemon.wait_for(bench.id, lambda _: bench.results())
    gate.touch()
    ended = bench.end()
    assert ended["status"] == "SUCCEEDED"
    assert "outbox/main.jsonl became shorter or was replaced" in ended["message"]
    assert ended["finalResult"] == (None if second == "0.25e" else second)
    assert "results of job" in bench.log() and "with >> in a shell" in bench.log()


@pytest.mark.parametrize("removed", ["", "outbox", "outbox/main.jsonl"], ids=["folder", "outboxes", "outbox"])
def test_removed_outbox_is_reported_on_its_trial(bench: Bench, removed: str) -> None:
    gate = bench.gates / "gate"
    line = '{"type":"intermediate","value":0.5}'
    bench.start(f"echo '{line}' >> $NNI_OUTBOX; until [ -e {gate} ]; do sleep 0.02; done")
    bench.daemon.wait_for(bench.id, lambda _: bench.results())
    (trial,) = bench.trials()
    path = bench.daemon.data / bench.id / "trials" / trial["id"] / removed
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    gate.touch()
    ended = bench.end()
    assert "was missing when the job ended" in ended["message"]


def test_moved_data_directory_keeps_results_of_running_jobs(daemon: Daemon, code: Path, tmp_path: Path) -> None:
    (tmp_path / "moved").mkdir()
    bench, gate = Bench(daemon, code, tmp_path / "moved"), tmp_path / "gate"
    lines = [f'{{"type":"{type_}","value":{value}}}' for type_, value in (("intermediate", 0.5), ("final", 0.75))]
    wait = f"until [ -e {gate} ]; do sleep 0.02; done"
    bench.start(f"exec 3>>$NNI_OUTBOX; echo '{lines[0]}' >&3; {wait}; echo '{lines[1]}' >&3")
    daemon.wait_for(bench.id, lambda _: bench.results())
    daemon.terminate()
    daemon.data = daemon.data.rename(tmp_path / "moved" / "data")
    daemon.start()
    gate.touch()
    ended = bench.end()
    assert (ended["status"], ended["finalResult"], ended["message"]) == ("SUCCEEDED", "0.75", "")


def test_trial_without_a_report_has_no_doubt(bench: Bench) -> None:
    ended = bench.run("true")
    assert (ended["status"], "gone" in ended["message"]) == ("SUCCEEDED", False)


def test_edited_code_is_named_and_each_trial_has_its_state(bench: Bench) -> None:
    code = bench.code / "factor.sh"
    code.write_text("FACTOR=1\n")
    (bench.code / "written.json").write_text("{}")
    command = (
        '. ./factor.sh; echo "{\\"n\\": $NNI_TRIAL_SEQ_ID}" > written.json; date >> trials.log;'
        ' echo "{\\"type\\": \\"final\\", \\"value\\": $FACTOR}" >> "$NNI_OUTBOX";'
        ' while [ ! -e "$GATES/$NNI_TRIAL_SEQ_ID" ]; do sleep 0.05; done'
    )
    bench.start(command, maxTrialNumber=3)
    for number, content in enumerate(("FACTOR=2\n", "FACTOR=1\n", "")):
        expected = [(1, 1), (2, 2), (1, 1)][: number + 1]
        bench.daemon.wait_for(
            bench.id,
            lambda _, e=expected: [(one["finalValue"], one["codeState"]) for one in bench.trials()][: len(e)] == e,
        )
        if content:
            code.write_text(content)
        bench.open_gate(number)
    bench.daemon.wait(bench.id, "DONE")
    found = [(trial["finalValue"], trial["codeState"]) for trial in bench.trials()]
    assert found == [(1, 1), (2, 2), (1, 1)]
    state = bench.daemon.wait_for(bench.id, lambda state: state["warnings"])
    (warning,) = [one for one in state["warnings"] if one["code"] == "CODE_CHANGED"]
    second = next(trial["id"] for trial in bench.trials() if trial["sequenceId"] == 1)
    assert f"(factor.sh): trial {second} (number 1) is the first to run the new code, state 2" in warning["message"]


def test_edited_settings_count_if_trials_did_not_edit_them(bench: Bench) -> None:
    settings = bench.code / "factor.cfg"
    settings.write_text("FACTOR=1\n")
    command = (
        '. ./factor.cfg; echo "{\\"type\\": \\"final\\", \\"value\\": $FACTOR}" >> "$NNI_OUTBOX";'
        ' while [ ! -e "$GATES/$NNI_TRIAL_SEQ_ID" ]; do sleep 0.05; done'
    )
    bench.start(command, maxTrialNumber=3)
    bench.daemon.wait_for(bench.id, lambda _: len(bench.results()) == 1 and bench.trials()[0]["codeState"] == 1)
    settings.write_text("FACTOR=2\n")
    bench.open_gate(0, 1)
    bench.daemon.wait_for(bench.id, lambda _: len(bench.results()) == 3)
    bench.open_gate(2)
    bench.daemon.wait_for(bench.id, lambda state: any(one["code"] == "CODE_CHANGED" for one in state["warnings"]))
    found = [(trial["finalValue"], trial["codeState"]) for trial in bench.trials()]
    assert found == [(1, 1), (2, 2), (2, 2)]


def test_further_final_results_of_all_channels_are_counted(bench: Bench) -> None:
    trial = bench.run_code(
        "import json, time\n"
        "nni.report_final_result(1)\n"
        "time.sleep(0.3)\n"
        "text = json.dumps({'type': 'FINAL', 'value': '2', 'parameter_id': 0, 'sequence': 0}) + '\\n'\n"
        "os.makedirs(os.path.join(os.environ['NNI_SYS_DIR'], '.nni'), exist_ok=True)\n"
        "with open(os.path.join(os.environ['NNI_SYS_DIR'], '.nni', 'metrics'), 'a') as file:\n"
        "    file.write(f'ME{len(text):06d}{text}')\n"
        "if os.fork() == 0:\n"
        "    nni.report_final_result(3)\n"
        "    os._exit(0)\n"
        "os.wait()\n"
    )
    words = "2 further final results were ignored: report once, from rank 0"
    assert (trial["finalValue"], trial["message"]) == (1, words)
    (warning,) = [one for one in bench.call("GET")["warnings"] if one["code"] == "FURTHER_FINAL_RESULTS"]
    assert f"trial {trial['id']}: {words}" in warning["message"]
    assert bench.log().count("reported more than one final result") == 1


def test_continued_attempt_extends_the_curve_of_the_first(bench: Bench) -> None:
    trial = bench.run_code(
        "file = os.path.join(os.environ['NNI_CHECKPOINT_DIR'], 'epoch')\n"
        "first = int(open(file).read()) if os.path.exists(file) else 0\n"
        "for epoch in range(first, first + 4):\n"
        "    nni.report_intermediate_result(epoch + 10 * bool(first), step=epoch)\n"
        "with open(file, 'w') as opened: opened.write('3')\n"
        "if not first: sys.exit(1)\n"
        "nni.report_final_result(1)\n",
        maxTrialRetries=1,
    )
    assert (trial["status"], trial["attempt"], trial["intermediates"]) == ("SUCCEEDED", 2, 4)
    (curve,) = bench.call("GET", f"/analysis/curves?selected={trial['sequenceId']}")["curves"]
    assert (curve["x"], curve["y"]) == ([0, 1, 2, 3, 4, 5, 6], [0, 1, 2, 13, 14, 15, 16])
    metrics = bench.call("GET", f"/metrics?trial={trial['id']}&type=PERIODICAL")["metrics"]
    assert [(one["attempt"], one["sequence"], one["step"]) for one in metrics[4:]] == [
        *((2, number, number + 3) for number in range(4))
    ]


def test_final_result_counts_beyond_the_limit_of_results(bench: Bench) -> None:
    trial = bench.run_code(
        "import nni\n"
        "for step in range(40):\n"
        "    nni.report_intermediate_result({'default': step, 'more': 'x' * 100_000})\n"
        "nni.report_final_result(7)\n",
        maxResultSize="2MB",
    )
    assert (trial["status"], trial["finalValue"]) == ("SUCCEEDED", 7.0) and 0 < trial["intermediates"] < 40
    assert "maxResultSize (2 MB)" in trial["message"] and bench.log().count("maxResultSize (2 MB)") >= 1


def test_long_output_warns_once_and_is_kept(bench: Bench) -> None:
    command = (
        "head -c $((NNI_TRIAL_SEQ_ID * 700000)) /dev/zero; head -c 400000 /dev/zero >&2;"
        ' echo "{\\"type\\": \\"final\\", \\"value\\": 1}" >> "$NNI_OUTBOX"'
    )
    bench.start(command, maxTrialNumber=4, maxLogSize="1MB")
    bench.daemon.wait(bench.id, "DONE")
    state = bench.daemon.wait_for(bench.id, lambda state: state["warnings"])
    (warning,) = [one for one in state["warnings"] if one["code"] == "LONG_OUTPUT"]
    trials = {trial["id"]: trial for trial in bench.trials()}
    (trial,) = [trial for id_, trial in trials.items() if f"trial {id_} wrote " in warning["message"]]
    written = trial["sequenceId"] * 700_000
    assert trial["sequenceId"] > 0 and (Path(trial["logPath"]) / "stdout").stat().st_size == written
    assert f"to {trial['logPath']}/stdout: more than maxLogSize (1.05 MB)" in warning["message"]
    assert bench.log().count("more than maxLogSize") == 1
