"""Two witnesses of an attempt's end, the platform and the runner, and what follows from both."""

from __future__ import annotations

import json

import pytest

from nni_manager.domain.attempt import Observation
from nni_manager.domain.evidence import (
    AttemptEnd,
    RunnerExit,
    apart_ms,
    possible_ms,
    unstarted,
    weigh,
    with_possible_times,
)
from nni_manager.domain.job import JobState
from nni_manager.domain.reason import Reason
from nni_manager.domain.trial import failure_reason

pytestmark = pytest.mark.unit

OK = Observation(state=JobState.SUCCEEDED, exit_code=0, ended_ms=9)
EXIT_1 = Observation(state=JobState.FAILED, exit_code=1, ended_ms=9)
OOM = Observation(
    state=JobState.FAILED,
    exit_code=137,
    native_reason="OOMKilled",
    cause=Reason.OUT_OF_MEMORY,
    message="the container was killed",
)
TOO_LONG = Observation(
    state=JobState.FAILED,
    native_reason="DeadlineExceeded",
    cause=Reason.TIMEOUT,
    message="the limit of 1 h is over; raise timeLimit",
)
PREEMPTED = Observation(state=JobState.PREEMPTED, native_reason="Preempted")
LOST = Observation(state=JobState.LOST)
CANCELLED = Observation(state=JobState.CANCELLED)
PLATFORM = {
    "ok": OK,
    "exit 1": EXIT_1,
    "oom": OOM,
    "too long": TOO_LONG,
    "preempted": PREEMPTED,
    "lost": LOST,
    "cancelled": CANCELLED,
}


def word(exit_code: int | None = None, signal: int | None = None, stderr: str = "") -> RunnerExit:
    return RunnerExit(exit_code=exit_code, signal=signal, stderr_tail=stderr, started_ms=3, ended_ms=7, outboxes={})


RUNNER = {"0": word(0), "1": word(1, stderr="Traceback"), "15": word(signal=15), "9": word(signal=9)}


def test_missing_report_is_not_an_end() -> None:
    assert weigh(None, None) is None


@pytest.mark.parametrize("platform", PLATFORM.values(), ids=PLATFORM)
def test_end_by_the_platform_alone(platform: Observation) -> None:
    assert weigh(platform, None) == AttemptEnd(report=platform)


@pytest.mark.parametrize("runner", RUNNER.values(), ids=RUNNER)
def test_end_by_the_runner_alone(runner: RunnerExit) -> None:
    assert weigh(None, runner) == AttemptEnd(report=runner.report())


@pytest.mark.parametrize(
    ("platform", "runner", "state", "exit_code", "signal", "agree"),
    [
        ("ok", "0", "SUCCEEDED", 0, None, True),
        ("cancelled", "0", "SUCCEEDED", 0, None, True),
        ("cancelled", "1", "CANCELLED", 1, None, True),
        ("cancelled", "15", "CANCELLED", None, 15, True),
        ("ok", "1", "FAILED", 1, None, False),
        ("ok", "9", "FAILED", None, 9, False),
        ("exit 1", "0", "SUCCEEDED", 0, None, False),
        ("exit 1", "1", "FAILED", 1, None, True),
        ("exit 1", "15", "FAILED", 1, None, True),  # another process of the job failed, and this one was stopped for it
        ("oom", "9", "FAILED", None, 9, True),
        ("oom", "0", "SUCCEEDED", 0, None, False),
        ("too long", "0", "SUCCEEDED", 0, None, False),
        ("too long", "15", "FAILED", None, 15, True),
        ("preempted", "0", "SUCCEEDED", 0, None, False),
        ("preempted", "1", "PREEMPTED", None, None, True),
        ("preempted", "15", "PREEMPTED", None, None, True),
        ("lost", "0", "SUCCEEDED", 0, None, False),
        ("lost", "1", "LOST", None, None, True),
        ("lost", "9", "LOST", None, None, True),
    ],
)
def test_end_by_platform_and_runner(
    platform: str, runner: str, state: str, exit_code: int | None, signal: int | None, agree: bool
) -> None:
    found = weigh(PLATFORM[platform], RUNNER[runner])
    assert found is not None
    assert (found.report.state, found.report.exit_code, found.report.signal) == (state, exit_code, signal)
    assert (found.disagreement == "") is agree


def test_disagreement_names_both_reports() -> None:
    found = weigh(OK, word(3))
    assert found is not None
    assert found.disagreement == "the platform reports SUCCEEDED (exit code 0), the runner reports exit code 3"


def test_reason_is_the_platforms_and_exit_code_the_runners() -> None:
    found = weigh(OOM, word(signal=9, stderr="last words"))
    assert found is not None
    assert (found.report.native_reason, found.report.message) == ("OOMKilled", OOM.message)
    assert found.report.stderr_tail == "last words"
    assert (found.report.started_ms, found.report.ended_ms) == (3, 7)
    assert failure_reason(found.report) is Reason.OUT_OF_MEMORY


def test_success_with_a_killed_process_has_a_doubt() -> None:
    found = weigh(OOM, word(0))
    assert found is not None
    assert found.report.state is JobState.SUCCEEDED
    assert found.doubt == "a process of its job was killed: the container was killed"
    others = (weigh(EXIT_1, word(0)), weigh(TOO_LONG, word(0)), weigh(OOM, word(1)), weigh(OOM, None))
    assert [end.doubt for end in others if end is not None] == ["", "", "", ""]


def test_time_limit_of_the_platform_is_the_message() -> None:
    found = weigh(TOO_LONG, word(signal=15, stderr="step 9"))
    assert found is not None
    assert (found.report.message, found.report.stderr_tail) == (TOO_LONG.message, "step 9")
    assert (found.report.signal, failure_reason(found.report)) == (15, Reason.TIMEOUT)


@pytest.mark.parametrize("exit_code", [66, 67])
def test_runners_last_words_on_shared_storage_are_the_message(exit_code: int) -> None:
    """Whole: a last line is cut where trials are listed."""
    words = f"no mount.nfs; {'take another image; ' * 20}"
    failed = Observation(state=JobState.FAILED, exit_code=exit_code, message="the service says Failed")
    end = weigh(failed, word(exit_code, stderr=f"began\nsharedStorage: {words}\nTerminated\n"))
    assert end is not None and end.report.message == f"sharedStorage.remoteMountPoint: {words}"
    assert (end.report.stderr_tail, end.report.exit_code, end.disagreement) == ("", exit_code, ""), "it is told once"


@pytest.mark.parametrize(("exit_code", "stderr"), [(1, "sharedStorage: no"), (67, "Traceback"), (67, "sharedStorage:")])
def test_other_last_words_are_kept(exit_code: int, stderr: str) -> None:
    report = word(exit_code, stderr=stderr).report()
    assert (report.message, report.stderr_tail) == ("", stderr)


def test_stored_runner_report_is_parsed() -> None:
    text = json.dumps(
        {
            "exitCode": None,
            "signal": 9,
            "stderrTail": "ü",
            "startedMs": 1,
            "endedMs": 2,
            "outboxes": {"outbox/main.jsonl": 70},
        }
    )
    found = RunnerExit.parse(text)
    assert found == RunnerExit(
        exit_code=None, signal=9, stderr_tail="ü", started_ms=1, ended_ms=2, outboxes={"outbox/main.jsonl": 70}
    )
    assert found.report() == Observation(state=JobState.FAILED, signal=9, stderr_tail="ü", started_ms=1, ended_ms=2)


def test_runner_report_with_missing_fields() -> None:
    assert RunnerExit.parse('{"exitCode": 0, "outboxes": null}') == RunnerExit(
        exit_code=0, signal=None, stderr_tail="", started_ms=None, ended_ms=None, outboxes={}
    )


UNSTARTED = RunnerExit(
    exit_code=65,
    signal=None,
    stderr_tail="The code archive is refused.",
    started_ms=3,
    ended_ms=7,
    outboxes={},
    was_started=False,
)


@pytest.mark.parametrize("platform", [None, EXIT_1, CANCELLED], ids=["says nothing", "exit 1", "was told to end it"])
def test_failure_of_the_runner_is_not_the_commands(platform: Observation | None) -> None:
    found = weigh(platform, UNSTARTED)
    assert found is not None and found.report.cause is Reason.RUNNER_FAILED
    assert found.report.message == "the trial runner did not start the command: The code archive is refused."


@pytest.mark.parametrize("exit_code", [64, 65, 75, 77, 79, 126])
def test_exit_code_of_a_silent_runner_is_its_own(exit_code: int) -> None:
    found = unstarted(Observation(state=JobState.FAILED, exit_code=exit_code))
    assert found.cause is Reason.RUNNER_FAILED and f"(exit code {exit_code})" in found.message


@pytest.mark.parametrize("report", [OK, EXIT_1, OOM, LOST, Observation(state=JobState.PREEMPTED, exit_code=64)])
def test_other_ends_of_a_silent_runner_are_unchanged(report: Observation) -> None:
    assert unstarted(report) == report


def test_undelivered_results_are_a_doubt() -> None:
    told = RunnerExit.parse(json.dumps({"exitCode": 0, "signal": None, "undelivered": ["outbox/a was refused."]}))
    assert told.doubts == "not everything was delivered: outbox/a was refused."


@pytest.mark.parametrize(("ahead_ms", "corrected"), [(600_000, True), (-600_000, True), (1500, False), (0, True)])
def test_clock_offset_of_the_runner_is_corrected(ahead_ms: int, corrected: bool) -> None:
    """A runner's clock of ten minutes more or less changes neither when its command began nor how long it took."""
    intended, started, ended, now = 1_000_000, 5_000_000, 8_000_000, 8_000_010
    told = {"startedMs": started + ahead_ms, "endedMs": ended + ahead_ms, "nowMs": now + ahead_ms}
    found = json.loads(with_possible_times(json.dumps(told), intended, now))
    times = (started, ended) if corrected else (started + ahead_ms, now)
    assert found == {"startedMs": times[0], "endedMs": times[1]}
    assert possible_ms(started + ahead_ms, intended, now, apart_ms(now + ahead_ms, now)) == times[0]
