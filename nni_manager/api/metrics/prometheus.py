"""The metrics of `/metrics`.

They are read on request, from memory and by indexed counts: a few milliseconds for any number of trials. Metrics that
cannot be read are left out, so that a daemon in trouble can still be monitored.
"""

from __future__ import annotations

import asyncio
import platform
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from weakref import WeakKeyDictionary

from prometheus_client.core import Metric

from nni_manager.api.context import ApiContext
from nni_manager.api.metrics.exposition import by_label, counter, counters, gauge, gauges, summary
from nni_manager.api.runners import trial_listener
from nni_manager.domain.errors import StoreError
from nni_manager.domain.experiment import ExperimentStatus, HoldCode
from nni_manager.scheduler.experiments.open_experiment import OpenExperiment
from nni_manager.scheduler.turns.turn import tally
from nni_manager.store import database
from nni_manager.store.experiment import trial_reads
from nni_manager.store.experiment.trial_reads import TrialTally

#: The newest experiments with metrics of their own; monitors keep every label for ever.
MOST_EXPERIMENTS = 100

_before: WeakKeyDictionary[OpenExperiment, TrialTally] = WeakKeyDictionary()


async def families(context: ApiContext) -> list[Metric]:
    """The families of metrics, in output order."""
    experiments = context.service.open_experiments
    tallied = await _tallied(experiments[-MOST_EXPERIMENTS:])
    return [
        *_build(context),
        *await _experiments(context),
        _trials(tallied),
        _holds(experiments, tallied),
        *_work(experiments),
        *_listeners(context),
        *_process(),
    ]


def _build(context: ApiContext) -> Iterable[Metric]:
    version = {"version": context.version, "python": platform.python_version()}
    yield gauge("nni_manager_build_info", "Always 1; the labels say what runs.", 1, **version)
    up_s = (context.clock() - context.started_ms) / 1000
    yield gauge("nni_manager_uptime_seconds", "Since the daemon was started.", up_s)


async def _experiments(context: ApiContext) -> Sequence[Metric]:
    try:
        known = await context.service.counts()
    except StoreError:
        return ()
    counts = {status.value: known.get(status, 0) for status in ExperimentStatus}
    text = "Experiments the daemon knows, by status."
    return (by_label("nni_manager_experiments", text, "status", counts),)


async def _tallied(experiments: Sequence[OpenExperiment]) -> dict[str, TrialTally]:
    """The counts of trials by experiment, without experiments that cannot be read."""
    found = await asyncio.gather(*map(_tally, experiments))
    return {experiment.id: tally for experiment, tally in zip(experiments, found, strict=True) if tally is not None}


async def _tally(experiment: OpenExperiment) -> TrialTally | None:
    before = _before.get(experiment, TrialTally())
    try:
        counted = await experiment.database.read(lambda c: trial_reads.tally(c, before))
    except StoreError:
        return None
    _before[experiment] = counted
    return counted


def _trials(tallied: Mapping[str, TrialTally]) -> Metric:
    samples = [((id_, status), number) for id_, tally in tallied.items() for status, number in tally.by_status.items()]
    text = f"Trials of the open experiments (the newest {MOST_EXPERIMENTS}), by status."
    return gauges("nni_manager_trials", text, ["experiment", "status"], samples)


def _holds(experiments: Sequence[OpenExperiment], tallied: Mapping[str, TrialTally]) -> Metric:
    found: Counter[str] = Counter()
    for experiment in experiments:
        recorded, derived = tallied.get(experiment.id), experiment.loop.derived_hold
        code = (recorded.hold if recorded else "") or (derived.code if derived else "")
        found[code] += 1
    text = "Open experiments that start no new trial, by the reason."
    return by_label("nni_manager_experiments_on_hold", text, "code", {code.value: found[code] for code in HoldCode})


def _work(experiments: Sequence[OpenExperiment]) -> Iterable[Metric]:
    databases = [experiment.database for experiment in experiments]
    stored = "Intermediate and final results stored by this process."
    yield counter("nni_manager_metrics_stored_total", stored, tally.results)
    yield summary("nni_manager_loop_turn_seconds", "Turns of all experiments: snapshot to commit.", tally.turns)
    yield summary("nni_manager_store_commit_seconds", "Commits to all databases.", database.commits)
    queued = sum(each.queued for each in databases)
    yield gauge("nni_manager_store_queue_depth", "Writes that wait, of all open experiments.", queued)
    in_trouble = sum(bool(each.trouble) for each in databases)
    yield gauge("nni_manager_stores_in_trouble", "Databases that cannot be written now.", in_trouble)


def _listeners(context: ApiContext) -> Iterable[Metric]:
    kinds = Counter(str(listener["kind"]) for listener in context.listeners())
    yield by_label("nni_manager_open_listeners", "Sockets and ports that are open.", "kind", kinds)
    posts = {outcome: trial_listener.answered[outcome] for outcome in trial_listener.OUTCOMES}
    text = "Requests of trial runners, by what became of them."
    yield counters("nni_manager_trial_posts_total", text, "outcome", posts)
    keeper = context.service.keeper
    yield gauge("nni_manager_keeper_needed", "1 while an experiment has jobs on this machine.", keeper.is_needed)
    yield gauge("nni_manager_keeper_up", "1 while the keeper of this machine is connected.", keeper.is_connected)
    lag = context.loop_lag
    yield summary("nni_manager_event_loop_lag_seconds", "How late each second's tick came.", lag.all)
    yield gauge("nni_manager_event_loop_lag_worst_seconds", "The latest tick of the last minute.", lag.worst_s)


def _process() -> Iterable[Metric]:
    """The metrics of this process, with Prometheus' standard names."""
    import psutil

    process = psutil.Process()
    with process.oneshot():
        times, memory, started_s = process.cpu_times(), process.memory_info(), process.create_time()
        files = process.num_fds()
    yield counter("process_cpu_seconds_total", "Processor time of the daemon, in seconds.", times.user + times.system)
    yield gauge("process_resident_memory_bytes", "Resident memory of the daemon.", memory.rss)
    yield gauge("process_virtual_memory_bytes", "Virtual memory of the daemon.", memory.vms)
    yield gauge("process_start_time_seconds", "When it was started, in seconds since the epoch.", started_s)
    yield gauge("process_open_fds", "Files, sockets and pipes that it has open.", files)
