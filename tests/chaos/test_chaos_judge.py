"""The judge of random faults distinguishes effects of faults from errors of the manager."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.chaos import judge
from tests.chaos.faults import Fault, Struck
from tests.chaos.judge import Faults

pytestmark = pytest.mark.unit

ADDRESSES = ["10.0.0.11", "10.0.0.12"]
RESTARTED = "its machine restarted"


class Told:
    """A daemon with one trial. `attempts`: per attempt, differences from one that a fault cut off."""

    def __init__(self, status: str, *attempts: dict[str, Any]) -> None:
        self._status = status
        self._attempts = [
            {
                "trialId": "aaaaa",
                "number": number,
                "jobName": f"job-{number}",
                "state": "LOST",
                "message": RESTARTED,
                "reason": "",
                "place": ADDRESSES[1],
                "submittedMs": 500,
                "startedMs": 1_000,
                "endedMs": 9_000,
                "interruptions": [],
                **one,
            }
            for number, one in enumerate(attempts, 1)
        ]

    def trials(self, id_: str) -> list[dict[str, Any]]:
        return [{"id": "aaaaa", "sequenceId": 7, "status": self._status, "reason": "LOST", "finalResult": "7"}]

    def attempts(self, id_: str) -> list[dict[str, Any]]:
        return self._attempts

    def rows(self, id_: str, query: str) -> list[tuple[str, str]]:
        return []


def struck(kind: str = "power", machine: int | None = 1, at: float = 5_000, lasted: float = 100) -> Struck:
    fault = Fault(at_s=0, kind=kind, machine=machine, lasts_s=lasted / 1000)
    return Struck(fault=fault, begun_ms=at, done_ms=at + 10, over_ms=at + lasted)


def found(notes: Path, daemon: Any, *made: Struck, began: bool = True) -> list[str]:
    if began:
        for number, _ in enumerate(daemon.attempts(""), 1):
            (notes / f"job-{number}").write_text("started 1\n")
    return judge.trials(daemon, "exp1", notes, 1, Faults(list(made), ADDRESSES, grace_s=600)).faults


def test_trial_with_every_attempt_cut_off_is_not_a_finding(tmp_path: Path) -> None:
    assert found(tmp_path, Told("SYS_CANCELED", {}, {}, {}), struck()) == []


@pytest.mark.parametrize(
    "made",
    [
        (),
        (struck(machine=0),),
        (struck(machine=None, kind="kill"),),
        (struck(at=9_500),),
        (struck(at=500),),
        (struck("keeper"),),
        (struck("sshd"),),
        (struck("drop", lasted=45_000),),
    ],
)
def test_every_unexplained_attempt_is_a_finding(tmp_path: Path, made: tuple[Struck, ...]) -> None:
    told = found(tmp_path, Told("SYS_CANCELED", {}, {}, {}), *made)
    assert len(told) == 3 and all("no fault can have ended it" in sentence for sentence in told)


@pytest.mark.parametrize(("made", "began"), [(struck("cut", lasted=601_000), True), (struck("keeper"), False)])
def test_other_causes_of_a_loss_are_not_a_finding(tmp_path: Path, made: Struck, began: bool) -> None:
    assert found(tmp_path, Told("SYS_CANCELED", {}, {}, {}), made, began=began) == []


@pytest.mark.parametrize("attempts", [({}, {}), ({}, {}, {"state": "FAILED"})])
def test_trial_with_attempts_left_or_another_end_is_a_finding(
    tmp_path: Path, attempts: tuple[dict[str, Any], ...]
) -> None:
    (told,) = found(tmp_path, Told("SYS_CANCELED", *attempts), struck())
    assert told.startswith("trial 7 is SYS_CANCELED")


def test_loss_without_a_message_is_a_finding(tmp_path: Path) -> None:
    assert found(tmp_path, Told("SYS_CANCELED", {}, {"message": ""}, {}), struck()) == [
        "trial 7, attempt 2, was lost without a word"
    ]


def test_lost_attempt_of_a_succeeded_trial_is_judged(tmp_path: Path) -> None:
    daemon = Told("SUCCEEDED", {}, {"state": "SUCCEEDED"})
    (tmp_path / "job-1").write_text("started 1\n")
    (tmp_path / "job-2").write_text("started 1\nended 7\n")
    daemon.rows = lambda id_, query: [("job-2", "7")]  # type: ignore[method-assign]
    assert found(tmp_path, daemon, struck(), began=False) == []
    (told,) = found(tmp_path, daemon, began=False)
    assert told.startswith("trial 7, attempt 1, was lost, and no fault can have ended it")
