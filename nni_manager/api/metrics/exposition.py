"""Families of metrics, and their text in Prometheus' exposition format 0.0.4, by Prometheus' library."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

from nni_manager.domain.clock import Durations

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
    """All families, in the order given; one without samples is left out."""
    return generate_latest(_Given([family for family in families if family.samples]))


class _Given(Collector):
    """The library's collector for existing families."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        return iter(self._families)
