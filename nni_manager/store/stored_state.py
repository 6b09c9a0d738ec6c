"""Reads the stored state of an experiment for a turn; runs inside the turn's transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping

from nni_manager.domain.attempt import Attempt
from nni_manager.domain.evidence import RunnerExit
from nni_manager.domain.experiment import (
    ExperimentSpec,
    ExperimentStatus,
    NeedlessCheckpoint,
    StoredExperiment,
    StoredState,
)
from nni_manager.domain.job import JobState
from nni_manager.domain.results import direction
from nni_manager.domain.results.final_result import ReportedResult
from nni_manager.domain.trial import OpenTrial
from nni_manager.store.experiment import experiments, jobs, kept_trials, runners, services, trials
from trial_runner import protocol


def load(
    connection: sqlite3.Connection,
    spec: ExperimentSpec,
    *,
    proposals: int,
    submitting: Collection[str],
    by_runner: Collection[str],
    first_ended: int,
    removing: Collection[str],
    ready: Mapping[str, bool],
) -> StoredState:
    """`proposals`: number available; `submitting`: names of jobs being submitted; `by_runner`: services for which only
    the runner's posts show a running job; `first_ended`: number of the earliest ended trials to load; `removing`:
    trials whose checkpoints are being removed; `ready`: training service → whether it is connected."""
    experiment = experiments.load(connection)
    open_trials = kept_trials.load(connection)
    failed = [trial.id for trial in open_trials if trial.job is not None and _may_have_failed(trial.job, by_runner)]
    few = experiment.ended_trials < first_ended
    holds = services.holds(connection)
    away = [name for name, is_ready in ready.items() if not is_ready or holds.get(name) is not None]
    in_play = sum(trial.job is not None and not trial.job.has_ended for trial in open_trials)
    # their submission failed, or its result was lost with a process
    without_handle = {trial.job.job_name for trial in open_trials if trial.job is not None and trial.job.handle is None}
    tried = [trial.id for trial in open_trials if trial.job is None and trial.attempt > 1]
    return StoredState(
        experiment=experiment,
        holds=holds,
        open_trials=open_trials,
        retries={id_: jobs.retries(connection, id_) for id_ in failed},
        offsets={name: jobs.offsets(connection, name) for name in without_handle - set(submitting)},
        missing=dict(_missing(connection, open_trials)),
        left={id_: service for id_ in tried if (service := jobs.leftover_service(connection, id_)) is not None},
        missed=_missed(connection, open_trials),
        fresh_ids=trials.fresh_ids(connection, min(proposals, max(0, spec.trial_concurrency - in_play))),
        first_ended=tuple(trials.first_ended(connection, first_ended)) if few else (),
        last_keys=trials.last_keys(connection, experiment.resumed_end, spec.max_same_failures - 1) if failed else (),
        failed=trials.failed_since(connection, experiment.resumed_end) if spec.max_failed_trials is not None else 0,
        reported=dict(_reported(connection, spec, experiment, open_trials)),
        needless=_needless(connection, spec, experiment, removing, away),
    )


def _reported(
    connection: sqlite3.Connection,
    spec: ExperimentSpec,
    experiment: StoredExperiment,
    open_trials: Iterable[OpenTrial],
) -> Iterator[tuple[str, ReportedResult]]:
    if experiment.unusable_results is None or not spec.counts_unusable_results:
        return
    for trial in open_trials:
        job = trial.job
        if job is not None and (job.has_ended or job.runner_exit is not None or job.unreachable_ms is not None):
            yield trial.id, trials.reported(connection, trial.id)


def _needless(
    connection: sqlite3.Connection,
    spec: ExperimentSpec,
    experiment: StoredExperiment,
    removing: Collection[str],
    away: Collection[str],
) -> tuple[NeedlessCheckpoint, ...]:
    """The checkpoints that `keepCheckpoints` releases. A tuner that continues trials may need any until the end."""
    if spec.kept_checkpoints is None or (spec.may_continue_trials and experiment.status is not ExperimentStatus.DONE):
        return ()
    maximize = direction.find(spec.canonical, experiment.class_direction).maximizes
    return tuple(
        trials.needless_checkpoints(connection, spec.kept_checkpoints, maximize=maximize, at_work=removing, away=away)
    )


def _may_have_failed(attempt: Attempt, by_runner: Collection[str]) -> bool:
    if attempt.service in by_runner and attempt.channel == protocol.PUSH and attempt.state == JobState.RUNNING:
        return True
    if not attempt.has_ended:
        return attempt.unreachable_ms is not None  # possibly for too long
    return attempt.runner_exit is not None or attempt.state != JobState.SUCCEEDED


def _missed(connection: sqlite3.Connection, open_trials: Iterable[OpenTrial]) -> dict[str, tuple[Attempt, ...]]:
    found: dict[str, tuple[Attempt, ...]] = {}
    if any(trial.attempt > 1 for trial in open_trials):
        for one in jobs.missed(connection):
            found[one.trial_id] = (*found.get(one.trial_id, ()), one)
    return found


def _missing(
    connection: sqlite3.Connection, open_trials: Iterable[OpenTrial]
) -> Iterator[tuple[str, dict[str, tuple[int, int]]]]:
    """(job name, missing results per outbox) of jobs with an exit report of their runner."""
    for trial in open_trials:
        if trial.job is not None and trial.job.runner_exit is not None:
            runner_exit = RunnerExit.parse(trial.job.runner_exit)
            yield trial.job.job_name, runners.missing(connection, trial.job.job_name, runner_exit.outboxes)
