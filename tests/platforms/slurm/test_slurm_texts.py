"""What Slurm prints, as recorded from 22.05, and what becomes of it: rows, states, waits, errors."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nni_manager.domain.errors import NniManagerError, PlatformUnavailable, SubmitRejected
from nni_manager.domain.job import JobState
from nni_manager.domain.reason import Reason
from nni_manager.domain.service import WaitCode
from nni_manager.machines.shell import Answer, NoAnswer
from nni_manager.platform_kit.contract import NoRoom
from nni_manager.platforms.slurm import commands, states
from nni_manager.platforms.slurm.listing import Row, newest_records, queue_rows, settings, version_of
from nni_manager.platforms.slurm.preflight import limits_of
from nni_manager.platforms.slurm.waits import wait_of

pytestmark = pytest.mark.unit

#: 2026-11-29T12:00:00Z
NOW_MS = 1_795_953_600_000

_QUEUE = """\
4|COMPLETED|0|0|2026-11-29T11:02:10|n1|None|nni_exp_a_trial_b
1|FAILED|36608|0|2026-11-29T11:00:33|n1|NonZeroExitCode|exp-a
3|PENDING|0|1|N/A||Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions|exp-c
2|RUNNING|0|0|2026-11-29T11:00:33|n[1-2]|None|exp-b
20|FAILED|256|0|2026-11-29T11:00:33||None|exp-d
slurm_load_jobs: a line that is not a job
"""
_RECORDS = """\
1|exp-a|FAILED|15:0|2026-11-29T11:00:32|2026-11-29T11:00:33|2026-11-29T11:00:33|n1
2|exp-b|CANCELLED by 1000|0:0|2026-11-29T11:00:32|2026-11-29T11:00:33|2026-11-29T11:02:10|n1
3|exp-c|PREEMPTED|0:0|2026-11-29T11:00:32|2026-11-29T11:00:33|2026-11-29T11:02:10|n1
3|exp-c|COMPLETED|0:0|2026-11-29T11:00:32|2026-11-29T11:00:33|2026-11-29T11:02:10|n1
5|an older job with this id|COMPLETED|0:0|2020-11-29T11:00:32|None|2026-11-29T11:02:10|None assigned
"""


def test_queue_is_read_by_id() -> None:
    rows = queue_rows(_QUEUE)
    assert [(id, row.state, row.exit_code, row.signal) for id, row in rows.items()] == [
        ("4", "COMPLETED", 0, 0),
        ("1", "FAILED", 143, 0),
        ("3", "PENDING", 0, 0),
        ("2", "RUNNING", 0, 0),
        ("20", "FAILED", 1, 0),
    ]
    assert rows["3"].restarts == 1 and rows["3"].start == "" and rows["3"].reason.startswith("Nodes required")
    assert rows["2"].nodes == "n[1-2]" and rows["2"].name == "exp-b"
    assert [id for id, row in rows.items() if row.was_refused] == ["20"]
    assert [id for id, row in rows.items() if row.is_open] == ["3", "2"]


@pytest.mark.parametrize(
    ("status", "codes"), [("36608", (143, 0)), ("9", (0, 9)), ("143:0", (143, 0)), ("0:9", (0, 9)), ("", (None, None))]
)
def test_exit_status_is_read_in_both_notations(status: str, codes: tuple[int | None, int | None]) -> None:
    (row,) = queue_rows(f"1|FAILED|{status}|0|N/A|n1|None|exp\n").values()
    assert (row.exit_code, row.signal) == codes


def test_last_record_of_a_job_counts_and_older_ids_do_not() -> None:
    rows = newest_records(_RECORDS, {"1": "exp-a", "2": "exp-b", "3": "exp-c", "5": "exp-e"})
    assert {id: (row.state, row.by, row.restarts) for id, row in rows.items()} == {
        "1": ("FAILED", "", 0),
        "2": ("CANCELLED", "1000", 0),
        "3": ("COMPLETED", "", 1),
    }


def test_settings_and_versions_are_read() -> None:
    found = settings("slurm-wlm 22.05.8\nHOME = /home/ann\nMinJobAge               = 300 sec\n")
    assert found == {"HOME": "/home/ann", "MinJobAge": "300 sec"}
    assert [version_of(text) for text in ("slurm-wlm 22.05.8", "slurm 24.11.5", "none")] == [(22, 5), (24, 11), None]


def _row(state: str, **fields: object) -> Row:
    return Row(id="7", name="exp", state=state, nodes="n1", **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("row", "complaint", "state", "cause", "exit_code", "signal"),
    [
        (_row("FAILED", exit_code=143, signal=0), "", JobState.FAILED, None, 143, None),
        (_row("FAILED", exit_code=15, signal=0, is_uncertain=True), "", JobState.FAILED, None, None, None),
        (_row("FAILED", exit_code=0, signal=9), "", JobState.FAILED, None, None, 9),
        (
            _row("FAILED", exit_code=0, signal=9),
            "slurmstepd: error: StepId=55.batch exceeded memory limit (538066944 > 104857600), being killed",
            JobState.FAILED,
            Reason.OUT_OF_MEMORY,
            None,
            None,
        ),
        (_row("FAILED", exit_code=0, signal=53), "", JobState.FAILED, Reason.SUBMIT_REJECTED, None, None),
        (_row("OUT_OF_MEMORY", exit_code=0, signal=125), "", JobState.FAILED, Reason.OUT_OF_MEMORY, None, None),
        (_row("TIMEOUT", exit_code=0, signal=1), "", JobState.FAILED, Reason.TIMEOUT, None, None),
        (_row("DEADLINE"), "", JobState.FAILED, Reason.TIMEOUT, None, None),
        (_row("COMPLETED", exit_code=0), "", JobState.SUCCEEDED, None, 0, None),
        (_row("COMPLETING", exit_code=0), "", JobState.RUNNING, None, None, None),
        (_row("PREEMPTED"), "", JobState.PREEMPTED, None, None, None),
        (_row("NODE_FAIL"), "", JobState.LOST, None, None, None),
        (_row("PENDING", restarts=1), "", JobState.RUNNING, None, None, None),
        (_row("COMPLETING", restarts=1), "", JobState.RUNNING, None, None, None),
        (_row("CANCELLED", restarts=1), "", JobState.PREEMPTED, None, None, None),
        (_row("DREAMING"), "", JobState.UNKNOWN, None, None, None),
    ],
)
def test_row_is_reported_as_the_table_says(
    row: Row, complaint: str, state: JobState, cause: Reason | None, exit_code: int | None, signal: int | None
) -> None:
    report = states.report(row, complaint)
    assert (report.state, report.cause, report.exit_code, report.signal) == (state, cause, exit_code, signal)
    assert (
        report.message
        or report.state in (JobState.RUNNING, JobState.SUCCEEDED, JobState.UNKNOWN)
        or exit_code
        or signal
    )


def test_cancelled_job_names_the_user() -> None:
    assert states.report(_row("CANCELLED", by="1000"), user="ann").message == "the job was cancelled on Slurm by ann"
    assert "user 1000" in states.report(_row("CANCELLED", by="1000")).message


def test_ended_job_names_its_node() -> None:
    row = _row("COMPLETED")
    assert (states.report(row).place, states.report(replace(row, nodes="")).place) == ("node n1", "")


def test_missing_exit_code_is_stated() -> None:
    report = states.report(_row("FAILED", exit_code=0, signal=0))
    assert (report.state, report.exit_code) == (JobState.FAILED, None)
    assert report.message == "Slurm does not report its exit code"


def test_suspended_job_runs_and_says_so() -> None:
    report = states.report(_row("SUSPENDED"))
    assert report.state is JobState.RUNNING and report.place == "node n1, suspended on Slurm"


@pytest.mark.parametrize(
    ("reason", "code", "is_hopeless"),
    [
        ("", WaitCode.SUBMITTED, False),
        ("Priority", WaitCode.QUEUED, False),
        ("Resources", WaitCode.QUEUED, False),
        ("BeginTime", WaitCode.QUEUED, False),
        ("Dependency", WaitCode.QUEUED, False),
        ("QOSMaxJobsPerUserLimit", WaitCode.QUOTA, False),
        ("AssocGrpCPUMinutesLimit", WaitCode.QUOTA, True),
        ("AssocGrpGRESMinutes", WaitCode.QUOTA, True),
        ("QOSGrpWallLimit", WaitCode.QUOTA, True),
        ("AssocGrpCPURunMinutesLimit", WaitCode.QUOTA, False),
        ("QOSGrpGRESRunMinutes", WaitCode.QUOTA, False),
        ("AssocGrpCpuLimit", WaitCode.QUOTA, False),
        ("QOSMaxMemoryPerUser", WaitCode.QUOTA, False),
        ("AssocMaxWallDurationPerJobLimit", WaitCode.UNSCHEDULABLE, True),
        ("AssocMaxCPUMinutesPerJobLimit", WaitCode.UNSCHEDULABLE, True),
        ("QOSMaxGRESPerJob", WaitCode.UNSCHEDULABLE, True),
        ("QOSMaxCpuPerNode", WaitCode.UNSCHEDULABLE, True),
        ("QOSMinCpuNotSatisfied", WaitCode.UNSCHEDULABLE, True),
        ("JobHeldUser", WaitCode.HELD, False),
        ("JobHeldAdmin", WaitCode.HELD, False),
        ("ReqNodeNotAvail, UnavailableNodes:n2", WaitCode.UNSCHEDULABLE, False),
        ("Nodes required for job are DOWN, DRAINED or reserved", WaitCode.UNSCHEDULABLE, False),
        ("PartitionConfig", WaitCode.UNSCHEDULABLE, True),
        ("PartitionDown", WaitCode.UNSCHEDULABLE, True),
        ("QOSMaxWallDurationPerJobLimit", WaitCode.UNSCHEDULABLE, True),
        (
            "Job's account not permitted to use this partition (private allows other not lab)",
            WaitCode.UNSCHEDULABLE,
            True,
        ),
    ],
)
def test_reason_becomes_a_wait(reason: str, code: WaitCode, is_hopeless: bool) -> None:
    wait = wait_of(_row("PENDING", reason=reason), NOW_MS)
    assert (wait.code, wait.is_hopeless) == (code, is_hopeless)
    assert reason in wait.sentence


@pytest.mark.parametrize(("reason", "is_hopeless"), [("AssocGrpCPUMinutesLimit", False), ("QOSGrpWallLimit", True)])
def test_minutes_may_be_reserved_by_running_jobs(reason: str, is_hopeless: bool) -> None:
    wait = states.report(_row("PENDING", reason=reason), others_run=True).wait
    assert wait is not None and wait.is_hopeless is is_hopeless
    assert ("running jobs reserve" in wait.sentence) is not is_hopeless


@pytest.mark.parametrize(
    ("start", "shown"),
    [
        ("2026-11-29T12:00:30", "2026-11-29T12:00:30Z"),
        ("2027-09-01T00:00:00", "2027-09-01T00:00:00Z"),
        ("2027-11-28T00:00:00", ""),
        ("2037-01-01T00:00:00", ""),
        ("2026-11-29T11:59:00", ""),
        ("soon", ""),
        ("", ""),
    ],
)
def test_start_is_shown_in_utc_if_it_is_plausible(start: str, shown: str) -> None:
    details = wait_of(_row("PENDING", reason="Priority", start=start), NOW_MS).details
    assert details.get("startsAt", "") == shown


def test_times_of_the_queue_are_in_utc() -> None:
    assert commands.queue().startswith("exec env TZ=UTC0 SLURM_TIME_FORMAT=standard squeue ")


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        (
            "lab|normal,small|4|10",
            "the account lab allows 4 running and 10 submitted jobs at a time; QOS: normal, small",
        ),
        ("lab|normal||10", "the account lab allows 10 submitted jobs at a time; QOS: normal"),
        ("lab|||", "the account lab has no limit on its number of jobs"),
        ("Lab|normal|4|", ""),
        ("sacctmgr: slow", ""),
    ],
)
def test_limits_of_an_account_are_a_sentence(row: str, sentence: str) -> None:
    assert limits_of(f"other|normal|1|1\n{row}\n", "lab") == sentence


def _answer(rc: int, out: str = "", err: str = "") -> Answer:
    return Answer(rc=rc, out=out.encode(), err=err.encode())


_POLICY = "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        (
            _answer(
                1,
                err="sbatch: error: invalid partition specified: X\nsbatch: error: Batch job submission failed: Invalid"
                " partition name specified",
            ),
            SubmitRejected,
            "invalid partition specified: X; Batch job submission failed",
        ),
        (_answer(255, err="sbatch: unrecognized option '--x'"), SubmitRejected, "unrecognized option"),
        (
            _answer(
                1,
                err="sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)",
            ),
            PlatformUnavailable,
            "Unable to contact",
        ),
        (
            _answer(1, err="sbatch: error: Batch job submission failed: Socket timed out on send/recv operation"),
            PlatformUnavailable,
            "Socket timed out",
        ),
        (_answer(127, err="bash: line 1: sbatch: command not found"), PlatformUnavailable, "not on the PATH"),
        (_answer(124), NoAnswer, "no answer within"),
        (_answer(137), NoAnswer, "was ended"),
        (_answer(0, "what?"), NoAnswer, "no job id"),
    ],
)
def test_failed_submission_is_an_error(answer: Answer, error: type[NniManagerError], words: str) -> None:
    with pytest.raises(error, match=words):
        commands.submitted(answer)


def test_only_an_unreached_controller_has_certainly_refused() -> None:
    refused = {}
    for words in ("Unable to contact slurm controller (connect failure)", "Socket timed out on send/recv operation"):
        with pytest.raises(PlatformUnavailable) as raised:
            commands.submitted(_answer(1, err=f"sbatch: error: Batch job submission failed: {words}"))
        refused[words.split()[0]] = raised.value.refused
    assert refused == {"Unable": True, "Socket": False}


def test_submit_limit_is_no_room() -> None:
    answer = commands.submitted(_answer(1, err=f"sbatch: error: QOSMaxSubmitJobPerUserLimit\nsbatch: error: {_POLICY}"))
    assert isinstance(answer, NoRoom) and answer.why.code is WaitCode.QUOTA


@pytest.mark.parametrize("out", ["123\n", "123;cluster\n", "a notice\n123\n"])
def test_accepted_submission_has_an_id(out: str) -> None:
    assert commands.submitted(_answer(0, out)) == "123"


def test_stop_signals_only_running_jobs() -> None:
    """`scancel` hangs if it signals the batch step of a suspended job."""
    parts = commands.ask_to_end(["7", "8"]).split("; ")
    assert [part.replace("exec ", "") for part in parts] == [
        "scancel --quiet --state=PENDING 7 8",
        "scancel --quiet --state=SUSPENDED 7 8",
        "scancel --quiet --state=RUNNING --batch --signal=TERM 7 8",
    ]
