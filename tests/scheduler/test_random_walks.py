"""Whatever happens in whatever order: never too many jobs, no trial lost or told twice, and always an end."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nni_manager.domain.attempt import Observation
from nni_manager.domain.experiment import ExperimentStatus, HoldCode
from nni_manager.domain.job import JobHandle, JobState
from nni_manager.domain.reason import Reason
from nni_manager.domain.service import Wait, WaitCode
from nni_manager.domain.space.parameters import Parameters, ParameterSource, Proposal
from nni_manager.domain.trial import StopRequest
from nni_manager.domain.trial_status import TrialStatus
from nni_manager.scheduler.planning import decisions as d
from nni_manager.scheduler.planning.snapshot import ProcessState, ServiceState
from nni_manager.scheduler.turns.turn import Seen, take_turn
from nni_manager.store.experiment import experiments, kept_trials, services, trials
from tests.scheduler.pictures import hold, spec
from tests.store.life import add_with

pytestmark = pytest.mark.unit

CONCURRENCY, IN_THE_TUNER = 3, 6
HAPPENINGS = (
    "accept",
    "accept",
    "run",
    "run",
    "succeed",
    "fail",
    "lose",
    "preempt",
    "strand",
    "reject",
    "refuse",
    "cancelled",
    "propose",
    "propose",
    "crash",
    "outage",
    "over",
    "kill",
    "minute",
    "stop",
    "resume",
    "judge",
    "add",
    "hold",
    "go on",
)


class World:
    """A platform, a tuner and people around one experiment's turns."""

    def __init__(self, connection: sqlite3.Connection, most: int | None) -> None:
        self.connection = connection
        self.spec = spec(
            trial_concurrency=CONCURRENCY, max_trial_number=most, max_trial_retries=1, max_trial_duration_s=200
        )
        self.now = 1_000
        #: What the platform runs: name → state.
        self.jobs: dict[str, JobState] = {}
        self.submitting: list[str] = []
        self.cancelled: set[str] = set()
        self.asked = 0
        self.left = IN_THE_TUNER
        self.proposals: list[Proposal] = []
        self.exhausted = False
        self.next_parameter_id = 0
        self.told: list[int] = []
        self.known_until = 0
        self.away_since: int | None = None
        self.status = ExperimentStatus.RUNNING
        self.turn()

    def turn(self, seen: Seen | None = None) -> None:
        """As often as the plan wants it at once; that must come to rest."""
        for _ in range(12):
            wake_at = self._turn(seen or Seen())
            self.check()
            if wake_at is None or wake_at > self.now:
                return
            seen = None
        pytest.fail("it never comes to rest")

    def _turn(self, seen: Seen) -> int | None:
        here = ProcessState(
            now_ms=self.now,
            submitting=frozenset(self.submitting),
            cancelled=frozenset(self.cancelled),
            services={"fake": self.service()},
            proposals=tuple(self.proposals),
            asked=self.asked,
            exhausted=self.exhausted,
            ahead=1,
        )
        self.connection.execute("BEGIN IMMEDIATE")
        result = take_turn(self.connection, self.spec, seen, here, reported=self.known_until, assessed=False)
        self.connection.execute("COMMIT")
        added = {r.parameter_id for r in result.records if isinstance(r, d.AddTrial)}
        self.proposals = [p for p in self.proposals if p.parameter_id not in added]
        self.told += [item["end_order"] for item in result.to_tell]
        self.known_until = max([self.known_until, *self.told])
        self.asked += 1 if result.to_tell and self.exhausted else 0
        self.next_parameter_id = max(self.next_parameter_id, result.next_parameter_id)
        self.status = result.status
        for call in result.calls:
            self.carry_out(call)
        return result.wake_at_ms

    def service(self) -> ServiceState:
        if self.away_since is None:
            return ServiceState()
        return ServiceState(away_since_ms=self.away_since, trouble="away", retry_at_ms=self.now + 1)

    def carry_out(self, call: d.Call) -> None:
        if isinstance(call, d.Submit):
            assert call.attempt.job_name not in self.submitting
            self.submitting.append(call.attempt.job_name)
        elif isinstance(call, d.Cancel):
            self.cancelled.add(call.handle.job_name)
        elif isinstance(call, d.Forget):
            assert call.handle.job_name not in self.jobs, "it forgets what still runs"
        else:
            self.asked += call.count

    def check(self) -> None:
        active = set(self.jobs) | set(self.submitting)
        assert len(active) <= CONCURRENCY, active
        row = experiments.load(self.connection)
        (stored,) = self.connection.execute("SELECT count(*) FROM trials").fetchone()
        assert stored == row.next_sequence_id
        assert self.spec.max_trial_number is None or stored <= self.spec.max_trial_number
        assert len(self.told) == len(set(self.told))
        still_open = trials.load_open(self.connection)
        assert kept_trials.load(self.connection) == still_open
        assert not still_open or row.status not in (ExperimentStatus.DONE, ExperimentStatus.STOPPED)
        assert all(t.status is not TrialStatus.WAITING or t.wait_code for t in still_open), "a wait without a reason"
        open_names = {t.job.job_name for t in still_open if t.job is not None}
        assert active <= open_names, "a job that belongs to no open trial"
        held = services.holds(self.connection).get("fake")
        if held is not None and held.code is HoldCode.NEVER_STARTS and row.status.is_active:
            assert any(t.job is not None and t.job.hopeless_ms is not None for t in still_open), "nothing is hopeless"

    # What may happen

    def happen(self, what: str, which: int) -> None:
        if what in ("accept", "reject", "refuse") and self.submitting:
            self._answer(self.submitting.pop(which % len(self.submitting)), what)
        elif what == "strand" and self.jobs and not self.away_since:
            self._strand(sorted(self.jobs)[which % len(self.jobs)])
        elif what in ("run", "succeed", "fail", "lose", "preempt", "cancelled") and self.jobs and not self.away_since:
            self._report(sorted(self.jobs)[which % len(self.jobs)], what)
        elif what == "propose" and self.asked:
            self._propose()
        elif what == "crash":
            self._crash()
        elif what == "outage":
            self.away_since = self.away_since or self.now
            self.turn()
        elif what == "over":
            self.away_since = None
            self.turn()
        elif what == "minute":
            self.now += 60_000
            self.turn()
        elif what in ("kill", "judge"):
            self._request_stop(which, StopRequest.USER if what == "kill" else StopRequest.ASSESSOR)
        elif what == "add" and self.status is not ExperimentStatus.STOPPED:
            self._add()
        elif what in ("hold", "go on"):
            experiments.set_hold(self.connection, hold() if what == "hold" else None)
            if what == "go on":
                self._put_right()
            self.turn()
        elif what == "stop" and self.status is not ExperimentStatus.STOPPED:
            experiments.set_status(self.connection, ExperimentStatus.STOPPING, self.now)
            self.turn()
        elif what == "resume" and self.status is ExperimentStatus.STOPPED:
            trials.reopen_stopped(self.connection)
            self._put_right()
            experiments.set_status(self.connection, ExperimentStatus.RUNNING, self.now)
            self._crash()

    def _put_right(self) -> None:
        """What a resume ends besides the hold of the experiment: those of its services, and the counts of failures."""
        experiments.forget_failures(self.connection)
        services.clear_holds(self.connection, self.now)

    def _answer(self, name: str, what: str) -> None:
        if what == "accept":
            self.jobs.setdefault(name, JobState.PENDING)
            self.turn(Seen(handles=(JobHandle(platform="fake", version=1, job_name=name),)))
        elif name in self.jobs:
            self.submitting.append(name)  # it has it already and cannot refuse it
        elif what == "reject":
            report = Observation(
                state=JobState.FAILED, cause=Reason.SUBMIT_REJECTED, message=f"no {name}", ended_ms=self.now
            )
            self.turn(Seen(reports={name: report}))
        else:
            self.turn(Seen(refused=(name,)))

    def _strand(self, name: str) -> None:
        """The platform will never start the job as it is."""
        if self.jobs[name] is JobState.PENDING:
            wait = Wait(code=WaitCode.QUOTA, sentence="no such partition", is_hopeless=True)
            self.turn(Seen(reports={name: Observation(state=JobState.PENDING, wait=wait)}))

    def _report(self, name: str, what: str) -> None:
        if what == "cancelled" and name not in self.cancelled:
            return
        state = {"run": "RUNNING", "succeed": "SUCCEEDED", "lose": "LOST", "preempt": "PREEMPTED"}.get(what, "FAILED")
        if state == "RUNNING":
            self.jobs[name] = JobState.RUNNING
        else:
            del self.jobs[name]
        if name in self.submitting:
            self.submitting.remove(name)
        handle = JobHandle(platform="fake", version=1, job_name=name)
        report = Observation(
            state=JobState(state), exit_code=1 if state == "FAILED" else None, message=f"{what} {name}"
        )
        self.turn(Seen(handles=(handle,), reports={name: report}))

    def _propose(self) -> None:
        count, self.asked = self.asked, 0
        given = min(count, self.left)
        self.left -= given
        self.proposals += [Proposal(parameter_id=self.next_parameter_id + n, values={"x": n}) for n in range(given)]
        self.next_parameter_id += given
        self.exhausted = given < count
        self.turn()

    def _crash(self) -> None:
        """The daemon dies; a submission under way may have arrived or not."""
        for name in self.submitting[::2]:
            self.jobs.setdefault(name, JobState.PENDING)
        self.submitting, self.cancelled, self.asked, self.exhausted = [], set(), 0, False
        self.left += len(self.proposals)
        self.proposals = []
        self.turn()

    def _add(self) -> None:
        """A person gives parameters."""
        made = experiments.load(self.connection).next_sequence_id
        if self.spec.max_trial_number is None or made < self.spec.max_trial_number:
            (id_,) = trials.fresh_ids(self.connection, 1)
            parameters = Parameters(parameter_id=None, source=ParameterSource.CUSTOMIZED, values={})
            add_with(self.connection, id_, parameters, self.now)
            self.turn()

    def _request_stop(self, which: int, by: StopRequest) -> None:
        found = trials.load_open(self.connection)
        if found:
            trials.request_stop(self.connection, found[which % len(found)].id, by)
            self.turn()

    def finish(self) -> None:
        """From now on everything goes well."""
        self.happen("over", 0)
        self.happen("go on", 0)
        for _ in range(300):
            if self.status in (ExperimentStatus.DONE, ExperimentStatus.STOPPED):
                break
            self.happen("accept", 0)
            self.happen("run", 0)
            self.happen("cancelled", 0)
            self.happen("succeed", 0)
            self.happen("propose", 0)
        assert self.status in (ExperimentStatus.DONE, ExperimentStatus.STOPPED), self.status
        assert not self.jobs and not self.submitting
        self._check_the_end()

    def _check_the_end(self) -> None:
        assert trials.load_open(self.connection) == ()
        row = experiments.load(self.connection)
        assert self.told == list(range(1, row.ended_trials + 1)), "each end is told once, in order"
        if self.status is ExperimentStatus.DONE:
            assert self.left == 0 or row.next_sequence_id == self.spec.max_trial_number


@given(
    st.lists(st.tuples(st.sampled_from(HAPPENINGS), st.integers(0, 5)), min_size=30, max_size=80),
    st.sampled_from([None, 1, 2, 4]),
)
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow], database=None)
def test_random_walks_end_well(
    in_memory: Callable[[], sqlite3.Connection], walk: list[tuple[str, int]], most: int | None
) -> None:
    connection = in_memory()
    world = World(connection, most)
    for what, which in walk:
        world.happen(what, which)
    world.finish()
    connection.close()


def test_without_disturbance_every_proposal_is_tried_once(in_memory: Callable[[], sqlite3.Connection]) -> None:
    connection = in_memory()
    world = World(connection, None)
    world.finish()
    assert connection.execute("SELECT count(*), sum(status = 'SUCCEEDED') FROM trials").fetchone() == (6, 6)
    connection.close()


def test_raised_limit_after_end_continues(in_memory: Callable[[], sqlite3.Connection]) -> None:
    connection = in_memory()
    world = World(connection, 2)
    world.finish()
    world.spec = replace(world.spec, max_trial_number=4)
    experiments.set_status(connection, ExperimentStatus.RUNNING, world.now)
    world.turn()
    world.finish()
    assert connection.execute("SELECT count(*) FROM trials").fetchone() == (4,)
    connection.close()
