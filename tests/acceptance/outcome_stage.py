"""All columns of the table of trial outcomes, and all outages, acted out at the same time on one daemon."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.acceptance import seen
from tests.acceptance.acted_experiment import ActedExperiment, Json, Picture, stern_assessor
from tests.acceptance.cluster import until
from tests.acceptance.conftest import TRIALS
from tests.acceptance.outcome_table import DURATION_S, LATE_S, ROWS, UNTIL_FIRST_RESULT_S, rules
from tests.acceptance.scripted_cluster import FAR_S
from tests.live_daemon import Daemon, running_daemon

#: Rows whose jobs run.
RUNNING = [row for row in ROWS if row != "refused"]
#: As the cluster says it.
OUTAGE = f"the scripted cluster is unreachable until {2 * FAR_S:g} s after the experiment began (outage)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A daemon that serves; `acts` go on at the same time."""

    daemon: Daemon
    code: Path
    folder: Path
    acts: dict[str, Future[list[Picture]]] = field(default_factory=dict)

    def experiment(self, title: str, names: list[str], cluster: Json, **fields: Any) -> ActedExperiment:
        notes = self.folder / f"{title}.jsonl"
        return ActedExperiment(self.daemon, self.code, notes, names, cluster, **fields)

    def pictures(self, title: str) -> list[Picture]:
        """What an act has shown, once it is over."""
        return self.acts[title].result(80)


@contextmanager
def acting(folder: Path) -> Iterator[Stage]:
    """Ends when the last act is over."""
    code = Path(shutil.copytree(TRIALS, folder / "code", ignore=shutil.ignore_patterns("__pycache__")))
    listeners = ("--host", "127.0.0.1", "--port", "0", "--trial-host", "127.0.0.1")
    with running_daemon(folder, *listeners) as daemon, ThreadPoolExecutor(max_workers=len(ACTS)) as pool:
        stage = Stage(daemon=daemon, code=code, folder=folder)
        stage.acts.update({title: pool.submit(act, stage) for title, act in ACTS.items()})
        yield stage


# The columns


def act_nobody(stage: Stage) -> list[Picture]:
    played = stage.experiment("nobody", [*ROWS], {"trials": rules(is_asked=False)})
    return [_over(played)]


def act_user(stage: Stage) -> list[Picture]:
    played = _asked(stage, "user")
    played.wait_for_count(RUNNING=len(RUNNING))
    played.kill(*reversed(ROWS))  # the one that waits for its refusal first
    return [_end(played, ROWS)]


def act_assessor(stage: Stage) -> list[Picture]:
    return [_end(_asked(stage, "assessor", assessor=stern_assessor()), RUNNING)]


def act_duration(stage: Stage) -> list[Picture]:
    return [_end(_asked(stage, "maxTrialDuration", maxTrialDuration="1s"), RUNNING)]


def act_stop(stage: Stage) -> list[Picture]:
    """Stopped; resumed, before anything else has ended; over, after a trial more, for which the tuner is needed."""
    played = _asked(stage, "experiment stop")
    played.wait_for_count(RUNNING=len(RUNNING))
    stopping = played.begin_stop()
    _let_end(played, ROWS)
    stopping.join()
    pictures = [played.picture()]
    played.resume()
    played.cluster.wait_for_jobs(len(ROWS) - 1, attempt=2)
    pictures.append(played.picture())
    played.cluster.advance(UNTIL_FIRST_RESULT_S)
    played.wait("DONE")
    played.cluster.wait_for_jobs(0)  # all are forgotten, so that the next one is the new one
    played.change(maxTrialNumber=len(ROWS) + 1)
    played.cluster.wait_for_jobs(1)
    played.cluster.advance(UNTIL_FIRST_RESULT_S)
    played.wait_for_count(SUCCEEDED=len(ROWS) + 1)
    return [*pictures, when_all_is_told(played, key="imported", count=1)]


def _asked(stage: Stage, column: str, **fields: Any) -> ActedExperiment:
    """All its trials run, but the one whose submission takes so long."""
    cluster = {"trials": rules(is_asked=True), "lateEvents": LATE_S}
    played = stage.experiment(column, [*ROWS], cluster, **fields)
    played.cluster.wait_for_jobs(len(RUNNING))
    played.cluster.advance(UNTIL_FIRST_RESULT_S)
    return played


def _end(played: ActedExperiment, rows: Collection[str]) -> Picture:
    _let_end(played, rows)
    return _over(played)


def _over(played: ActedExperiment) -> Picture:
    """When all have ended, and the hold is cleared for a job that was refused for good."""
    played.wait("DONE")
    picture = when_all_is_told(played)
    if (hold := picture.state["hold"]) is not None:
        assert hold["code"] == "SUBMIT_REJECTED" and "there is no such queue" in hold["sentence"]
        played.resume()
        played.wait("DONE")
        picture = when_all_is_told(played)
    return picture


def _let_end(played: ActedExperiment, rows: Collection[str]) -> None:
    """What befalls jobs is told when these rows were asked to stop; it had happened before that."""
    played.wait_for_requests(rows)
    played.cluster.wait_for_cancels()
    played.cluster.end_jobs()


def when_all_is_told(played: ActedExperiment, key: str = "ended", count: int = len(ROWS)) -> Picture:
    """The tuner hears of the last end after everybody else."""
    until(lambda: sum(key in note for note in seen.notes(played.notes)) >= count)
    return played.picture()


# The platform cannot be asked


def act_long_outage(stage: Stage) -> list[Picture]:
    """Before it; in it; in it for half a minute, when one is asked to stop; after it; when all is over."""
    played = _before_outage(stage, "long outage", ["left alone", "killed"])
    pictures = [played.picture()]
    _begin_outage(played)
    pictures.append(played.picture())
    played.wait_for_count(UNKNOWN=2)
    played.kill("killed")
    pictures.append(played.picture())
    played.cluster.end_outage()
    played.wait_for_count(RUNNING=1, USER_CANCELED=1)
    pictures.append(played.picture())
    played.cluster.end_jobs()
    played.wait("DONE")
    return [*pictures, when_all_is_told(played, count=2)]


def act_user_in_outage(stage: Stage) -> list[Picture]:
    return _asked_in_outage(stage, "user", lambda played: played.kill("only"))


def act_assessor_in_outage(stage: Stage) -> list[Picture]:
    gate = stage.folder / "gate"
    assessor = stern_assessor(gate=str(gate))
    return _asked_in_outage(stage, "assessor", lambda _: gate.touch(), assessor=assessor)


def act_duration_in_outage(stage: Stage) -> list[Picture]:
    def ask(played: ActedExperiment) -> None:
        played.change(maxTrialDuration="1s")

    return _asked_in_outage(stage, "maxTrialDuration", ask, maxTrialDuration="1h")


def act_stop_in_outage(stage: Stage) -> list[Picture]:
    return _asked_in_outage(stage, "experiment stop", lambda played: played.begin_stop())


def _asked_in_outage(
    stage: Stage, column: str, ask: Callable[[ActedExperiment], object], **fields: Any
) -> list[Picture]:
    """In it, when it was asked to stop; when all is over."""
    played = _before_outage(stage, f"{column}, outage", ["only"], **fields)
    _begin_outage(played)
    ask(played)
    played.wait_for_requests(["only"])
    until(lambda: "could not be told to stop" in played.log())
    pictures = [played.picture()]
    played.cluster.end_outage()
    played.wait("DONE", "STOPPED")
    return [*pictures, played.picture()]


def _before_outage(stage: Stage, title: str, names: list[str], **fields: Any) -> ActedExperiment:
    """All trials run and have reported something."""
    cluster = {
        "outage": {"after": FAR_S, "for": FAR_S},
        "trials": [{"results": [0.1] * 99, "result": 1, "duration": DURATION_S}],
    }
    played = stage.experiment(title, names, cluster, **fields)
    played.wait_for_count(RUNNING=len(names))
    until(lambda: all(trial["intermediates"] for trial in played.picture().trials.values()), within_s=40)
    return played


def _begin_outage(played: ActedExperiment) -> None:
    """It is known."""
    played.cluster.begin_outage()
    played.wait_for(lambda state: state["hold"] and state["hold"]["code"] == "PLATFORM_UNAVAILABLE")


ACTS: dict[str, Callable[[Stage], list[Picture]]] = {
    "long outage": act_long_outage,
    "user, outage": act_user_in_outage,
    "assessor, outage": act_assessor_in_outage,
    "maxTrialDuration, outage": act_duration_in_outage,
    "experiment stop, outage": act_stop_in_outage,
    "nobody": act_nobody,
    "user": act_user,
    "assessor": act_assessor,
    "maxTrialDuration": act_duration,
    "experiment stop": act_stop,
}
