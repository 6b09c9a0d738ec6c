"""Prometheus' text exposition format, version 0.0.4."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from nni_manager.domain.clock import Durations

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    value: float
    labels: Mapping[str, str]
    #: What the family's name goes on with: ``_sum`` and ``_count`` of a summary.
    suffix: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricFamily:
    """Samples of one name. The name ends in its unit, and a counter's in ``_total``."""

    name: str
    kind: Literal["counter", "gauge", "summary"]
    help: str
    samples: Sequence[Sample]


def counter(name: str, help: str, value: float) -> MetricFamily:
    return MetricFamily(name=name, kind="counter", help=help, samples=[Sample(value=value, labels={})])


def gauge(name: str, help: str, value: float, **labels: str) -> MetricFamily:
    return MetricFamily(name=name, kind="gauge", help=help, samples=[Sample(value=value, labels=labels)])


def by_label(
    name: str, help: str, label: str, values: Mapping[str, float], kind: Literal["counter", "gauge"] = "gauge"
) -> MetricFamily:
    """A sample for each of the values of one label."""
    samples = [Sample(value=value, labels={label: name}) for name, value in values.items()]
    return MetricFamily(name=name, kind=kind, help=help, samples=samples)


def summary(name: str, help: str, durations: Durations) -> MetricFamily:
    """Sum and count; quantiles are not kept."""
    count, total_s = durations.read()
    samples = [Sample(value=total_s, labels={}, suffix="_sum"), Sample(value=count, labels={}, suffix="_count")]
    return MetricFamily(name=name, kind="summary", help=help, samples=samples)


def text(families: Iterable[MetricFamily]) -> str:
    """All families, in the order given; one without samples is left out."""
    return "".join(f"{line}\n" for family in families if family.samples for line in _lines(family))


def _lines(family: MetricFamily) -> Iterator[str]:
    yield f"# HELP {family.name} {_escaped(family.help)}"
    yield f"# TYPE {family.name} {family.kind}"
    for sample in family.samples:
        yield f"{family.name}{sample.suffix}{_labels(sample.labels)} {_number(sample.value)}"


def _labels(labels: Mapping[str, str]) -> str:
    pairs = ",".join(f'{name}="{_quoted(value)}"' for name, value in labels.items())
    return f"{{{pairs}}}" if pairs else ""


def _escaped(words: str) -> str:
    return words.replace("\\", "\\\\").replace("\n", "\\n")


def _quoted(value: str) -> str:
    return _escaped(value).replace('"', '\\"')


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 2**53 else repr(float(value))
