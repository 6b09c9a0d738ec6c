"""All columns of the outcome table, and all outages, in parallel on one daemon."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.acceptance import user_views
from tests.acceptance.conftest import TRIALS
from tests.acceptance.outcome_table import DURATION_S, LATE_S, ROWS, UNTIL_FIRST_RESULT_S, rules
from tests.acceptance.scripted_cluster import FAR_S
from tests.acceptance.scripted_experiment import Json, ScriptedExperiment, View, stern_assessor
from tests.live_daemon import Daemon, running_daemon
from tests.waiting import until

#: Rows with a running job.
RUNNING = [row for row in ROWS if row != "refused"]
#: The cluster's sentence about the outage.
OUTAGE = f"the scripted cluster is unreachable until {2 * FAR_S:g} s after the start of the experiment (outage)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenarios:
    """A serving daemon; `running`: title → future views of a scenario."""

    daemon: Daemon
    code: Path
    folder: Path
    running: dict[str, Future[list[View]]] = field(default_factory=dict)

    def experiment(self, title: str, names: list[str], cluster: Json, **fields: Any) -> ScriptedExperiment:
        notes = self.folder / f"{title}.jsonl"
        return ScriptedExperiment(self.daemon, self.code, notes, names, cluster, **fields)

    def views(self, title: str) -> list[View]:
        """Wait for the end of a scenario, at most 80 s."""
        return self.running[title].result(80)


@contextmanager
def running_scenarios(folder: Path) -> Iterator[Scenarios]:
    """Starts all scenarios; leaving waits for the last one."""
    code = Path(shutil.copytree(TRIALS, folder / "code", ignore=shutil.ignore_patterns("__pycache__")))
    listeners = ("--host", "127.0.0.1", "--port", "0", "--trial-host", "127.0.0.1")
    with running_daemon(folder, *listeners) as daemon, ThreadPoolExecutor(max_workers=len(SCENARIOS)) as pool:
        scenarios = Scenarios(daemon=daemon, code=code, folder=folder)
        scenarios.running.update({title: pool.submit(scenario, scenarios) for title, scenario in SCENARIOS.items()})
        yield scenarios


# The columns


def no_request(scenarios: Scenarios) -> list[View]:
    experiment = scenarios.experiment("no request", [*ROWS], {"trials": rules(is_asked=False)})
    return [_over(experiment)]


def user(scenarios: Scenarios) -> list[View]:
    experiment = _asked(scenarios, "user")
    experiment.wait_for_count(RUNNING=len(RUNNING))
    experiment.kill(*reversed(ROWS))  # the one that waits for its refusal first
    return [_end(experiment, ROWS)]


def assessor(scenarios: Scenarios) -> list[View]:
    return [_end(_asked(scenarios, "assessor", assessor=stern_assessor()), RUNNING)]


def duration(scenarios: Scenarios) -> list[View]:
    return [_end(_asked(scenarios, "maxTrialDuration", maxTrialDuration="1s"), RUNNING)]


def stop(scenarios: Scenarios) -> list[View]:
    """Views: stopped; resumed; done after one more trial, which the tuner proposes."""
    experiment = _asked(scenarios, "experiment stop")
    experiment.wait_for_count(RUNNING=len(RUNNING))
    stopping = experiment.begin_stop()
    _let_end(experiment, ROWS)
    stopping.join()
    views = [experiment.view()]
    experiment.resume()
    experiment.cluster.wait_for_jobs(len(ROWS) - 1, attempt=2)
    views.append(experiment.view())
    experiment.cluster.advance(UNTIL_FIRST_RESULT_S)
    experiment.wait("DONE")
    experiment.cluster.wait_for_jobs(0)  # all are forgotten, so that the next one is the new one
    experiment.change(maxTrialNumber=len(ROWS) + 1)
    experiment.cluster.wait_for_jobs(1)
    experiment.cluster.advance(UNTIL_FIRST_RESULT_S)
    experiment.wait_for_count(SUCCEEDED=len(ROWS) + 1)
    return [*views, when_all_is_told(experiment, key="imported", count=1)]


def _asked(scenarios: Scenarios, column: str, **fields: Any) -> ScriptedExperiment:
    """Every trial runs, except the one with the slow submission."""
    cluster = {"trials": rules(is_asked=True), "lateEvents": LATE_S}
    experiment = scenarios.experiment(column, [*ROWS], cluster, **fields)
    experiment.cluster.wait_for_jobs(len(RUNNING))
    experiment.cluster.advance(UNTIL_FIRST_RESULT_S)
    return experiment


def _end(experiment: ScriptedExperiment, rows: Collection[str]) -> View:
    _let_end(experiment, rows)
    return _over(experiment)


def _over(experiment: ScriptedExperiment) -> View:
    """Wait until all trials have ended, and clear the hold for a permanently refused job."""
    experiment.wait("DONE")
    view = when_all_is_told(experiment)
    if (hold := view.state["hold"]) is not None:
        assert hold["code"] == "SUBMIT_REJECTED" and "no such queue" in hold["sentence"]
        experiment.resume()
        experiment.wait("DONE")
        view = when_all_is_told(experiment)
    return view


def _let_end(experiment: ScriptedExperiment, rows: Collection[str]) -> None:
    """Releases the ends of the jobs once these rows were asked to stop; they happened before the request."""
    experiment.wait_for_requests(rows)
    experiment.cluster.wait_for_cancels()
    experiment.cluster.end_jobs()


def when_all_is_told(experiment: ScriptedExperiment, key: str = "ended", count: int = len(ROWS)) -> View:
    """Wait for the tuner, which is the last to learn of an end."""
    until(lambda: sum(key in note for note in user_views.notes(experiment.notes)) >= count)
    return experiment.view()


# The platform cannot be asked


def long_outage(scenarios: Scenarios) -> list[View]:
    """Views: before the outage; in it; half a minute later, after a stop request; after it; at the end."""
    experiment = _before_outage(scenarios, "long outage", ["left alone", "killed"])
    views = [experiment.view()]
    _begin_outage(experiment)
    views.append(experiment.view())
    experiment.wait_for_count(UNKNOWN=2)
    experiment.kill("killed")
    views.append(experiment.view())
    experiment.cluster.end_outage()
    experiment.wait_for_count(RUNNING=1, USER_CANCELED=1)
    views.append(experiment.view())
    experiment.cluster.end_jobs()
    experiment.wait("DONE")
    return [*views, when_all_is_told(experiment, count=2)]


def user_in_outage(scenarios: Scenarios) -> list[View]:
    return _asked_in_outage(scenarios, "user", lambda experiment: experiment.kill("only"))


def assessor_in_outage(scenarios: Scenarios) -> list[View]:
    gate = scenarios.folder / "gate"
    assessor = stern_assessor(gate=str(gate))
    return _asked_in_outage(scenarios, "assessor", lambda _: gate.touch(), assessor=assessor)


def duration_in_outage(scenarios: Scenarios) -> list[View]:
    def ask(experiment: ScriptedExperiment) -> None:
        experiment.change(maxTrialDuration="1s")

    return _asked_in_outage(scenarios, "maxTrialDuration", ask, maxTrialDuration="1h")


def stop_in_outage(scenarios: Scenarios) -> list[View]:
    return _asked_in_outage(scenarios, "experiment stop", lambda experiment: experiment.begin_stop())


def _asked_in_outage(
    scenarios: Scenarios, column: str, ask: Callable[[ScriptedExperiment], object], **fields: Any
) -> list[View]:
    """Views: in the outage, after the stop request; at the end."""
    experiment = _before_outage(scenarios, f"{column}, outage", ["only"], **fields)
    _begin_outage(experiment)
    ask(experiment)
    experiment.wait_for_requests(["only"])
    until(lambda: "could not be delivered" in experiment.log())
    views = [experiment.view()]
    experiment.cluster.end_outage()
    experiment.wait("DONE", "STOPPED")
    return [*views, experiment.view()]


def _before_outage(scenarios: Scenarios, title: str, names: list[str], **fields: Any) -> ScriptedExperiment:
    """Wait until all trials run and have reported a result."""
    cluster = {
        "outage": {"after": FAR_S, "for": FAR_S},
        "trials": [{"results": [0.1] * 99, "result": 1, "duration": DURATION_S}],
    }
    experiment = scenarios.experiment(title, names, cluster, **fields)
    experiment.wait_for_count(RUNNING=len(names))
    until(lambda: all(trial["intermediates"] for trial in experiment.view().trials.values()), within_s=40)
    return experiment


def _begin_outage(experiment: ScriptedExperiment) -> None:
    """Returns once the daemon has noticed."""
    experiment.cluster.begin_outage()
    experiment.wait_for(lambda state: state["hold"] and state["hold"]["code"] == "PLATFORM_UNAVAILABLE")


SCENARIOS: dict[str, Callable[[Scenarios], list[View]]] = {
    "long outage": long_outage,
    "user, outage": user_in_outage,
    "assessor, outage": assessor_in_outage,
    "maxTrialDuration, outage": duration_in_outage,
    "experiment stop, outage": stop_in_outage,
    "no request": no_request,
    "user": user,
    "assessor": assessor,
    "maxTrialDuration": duration,
    "experiment stop": stop,
}
