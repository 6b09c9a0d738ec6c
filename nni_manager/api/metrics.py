"""The metrics of `/metrics`, in Prometheus' exposition format 0.0.4.

They are read on request, from memory and indexed counts, in a few milliseconds for any number of trials. Unreadable
metrics are omitted, so that a daemon with problems can still be monitored.
"""

from __future__ import annotations

import asyncio
import platform
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from weakref import WeakKeyDictionary

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

from nni_manager.api.context import ApiContext
from nni_manager.api.runners import trial_listener
from nni_manager.domain.clock import Durations
from nni_manager.domain.errors import StoreError
from nni_manager.domain.experiment import ExperimentStatus, HoldCode
from nni_manager.scheduler.experiments.open_experiment import OpenExperiment
from nni_manager.scheduler.turns.turn import tally
from nni_manager.store import database
from nni_manager.store.experiment import trial_reads
from nni_manager.store.experiment.trial_reads import TrialTally

#: Number of newest experiments with their own metrics; monitors keep every label forever.
MOST_EXPERIMENTS = 100

_before: WeakKeyDictionary[OpenExperiment, TrialTally] = WeakKeyDictionary()


async def families(context: ApiContext) -> list[Metric]:
    """The families of metrics, in output order."""
    experiments = context.commands.open_experiments
    newest = experiments[-MOST_EXPERIMENTS:]
    counted = zip(newest, await asyncio.gather(*map(_tally, newest)), strict=True)
    tallied = {one.id: trials for one, trials in counted if trials is not None}  # without unreadable ones
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
    yield gauge("nni_manager_build_info", "Always 1; the labels state the version.", 1, **version)
    up_s = (context.clock() - context.started_ms) / 1000
    yield gauge("nni_manager_uptime_seconds", "Seconds since the start of the daemon.", up_s)


async def _experiments(context: ApiContext) -> Sequence[Metric]:
    try:
        known = await context.commands.counts()
    except StoreError:
        return ()
    counts = {status.value: known.get(status, 0) for status in ExperimentStatus}
    text = "Experiments of the daemon, by status."
    return (by_label("nni_manager_experiments", text, "status", counts),)


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
    text = "Open experiments that start no new trials, by reason."
    return by_label("nni_manager_experiments_on_hold", text, "code", {code.value: found[code] for code in HoldCode})


def _work(experiments: Sequence[OpenExperiment]) -> Iterable[Metric]:
    databases = [experiment.database for experiment in experiments]
    stored = "Intermediate and final results stored by this process."
    yield counter("nni_manager_metrics_stored_total", stored, tally.results)
    yield summary("nni_manager_loop_turn_seconds", "Turns of all experiments: snapshot to commit.", tally.turns)
    yield summary("nni_manager_store_commit_seconds", "Commits to all databases.", database.commits)
    queued = sum(each.queued for each in databases)
    yield gauge("nni_manager_store_queue_depth", "Waiting writes of all open experiments.", queued)
    in_trouble = sum(bool(each.trouble) for each in databases)
    yield gauge("nni_manager_stores_in_trouble", "Databases that cannot be written at the moment.", in_trouble)


def _listeners(context: ApiContext) -> Iterable[Metric]:
    kinds = Counter(str(listener["kind"]) for listener in context.listeners())
    yield by_label("nni_manager_open_listeners", "Open sockets and ports.", "kind", kinds)
    posts = {outcome: trial_listener.answered[outcome] for outcome in trial_listener.OUTCOMES}
    text = "Requests of trial runners, by outcome."
    yield counters("nni_manager_trial_posts_total", text, "outcome", posts)
    keeper = context.commands.keeper
    yield gauge("nni_manager_keeper_needed", "1 while an experiment has jobs on this machine.", keeper.is_needed)
    yield gauge("nni_manager_keeper_up", "1 while the keeper of this machine is connected.", keeper.is_connected)
    lag = context.loop_lag
    yield summary("nni_manager_event_loop_lag_seconds", "Delay of a tick that is due every second.", lag.all)
    yield gauge("nni_manager_event_loop_lag_worst_seconds", "Greatest delay of a tick in the last minute.", lag.worst_s)


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
    yield gauge("process_start_time_seconds", "Start time, in seconds since the epoch.", started_s)
    yield gauge("process_open_fds", "Open files, sockets and pipes.", files)


CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def counter(name: str, help: str, value: float) -> Metric:
    """A family of one counter. The name ends in ``_total``."""
    return CounterMetricFamily(name, help, value=value)


def gauge(name: str, help: str, value: float, **labels: str) -> Metric:
    """A family of one gauge. The name ends in its unit."""
    return gauges(name, help, list(labels), [(list(labels.values()), value)])


def gauges(name: str, help: str, labels: Sequence[str], samples: Iterable[tuple[Sequence[str], float]]) -> Metric:
    """A family of gauges. `samples`: (values of the labels, value of the gauge)."""
    family = GaugeMetricFamily(name, help, labels=labels)
    for values, value in samples:
        family.add_metric(values, value)
    return family


def by_label(name: str, help: str, label: str, values: Mapping[str, float]) -> Metric:
    """A family with a gauge for each of the values of one label."""
    return gauges(name, help, [label], [([each], value) for each, value in values.items()])


def counters(name: str, help: str, label: str, values: Mapping[str, float]) -> Metric:
    """A family with a counter for each of the values of one label. The name ends in ``_total``."""
    family = CounterMetricFamily(name, help, labels=[label])
    for each, value in values.items():
        family.add_metric([each], value)
    return family


def summary(name: str, help: str, durations: Durations) -> Metric:
    """A family of sum and count, without quantiles."""
    count, total_s = durations.read()
    return SummaryMetricFamily(name, help, count_value=count, sum_value=total_s)


def text(families: Iterable[Metric]) -> bytes:
    """All families, in the given order, without those that have no samples."""
    return generate_latest(_Given([family for family in families if family.samples]))


class _Given(Collector):
    """The library's collector for existing families."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        return iter(self._families)
