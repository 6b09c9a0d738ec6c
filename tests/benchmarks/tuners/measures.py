"""Measures of searches, pooled over families and seeds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

#: Regrets: family → one for each seed.
Regrets = Mapping[str, Sequence[float]]

#: Minimum share of Random's median: smaller regrets count as found.
FLOOR = 1e-3


def ratio(regrets: Regrets, of_random: Regrets) -> float:
    """Geometric mean, over families and seeds, of the regret as a share of Random's median of the family."""
    logs = [math.log(share) for shares in _shares(regrets, of_random).values() for share in shares]
    return math.exp(statistics.fmean(logs))


def chance(regrets: Regrets, of_random: Regrets) -> float:
    """Probability that a tuner no better than Random does as well: Mann-Whitney, one-sided, normal approximation.

    The shares of Random's median are pooled over the families.
    """
    ours = [share for shares in _shares(regrets, of_random).values() for share in shares]
    randoms = [share for shares in _shares(of_random, of_random).values() for share in shares]
    ranks = _ranks([*ours, *randoms])
    count, other = len(ours), len(randoms)
    statistic = math.fsum(ranks[:count]) - count * (count + 1) / 2
    deviation = math.sqrt(count * other * (count + other + 1) / 12)
    return 0.5 * math.erfc((count * other / 2 - statistic) / deviation / math.sqrt(2))


def _shares(regrets: Regrets, of_random: Regrets) -> dict[str, list[float]]:
    shares = {}
    for family, values in regrets.items():
        median = statistics.median(of_random[family])
        shares[family] = [max(value / median, FLOOR) for value in values]
    return shares


def _ranks(values: Sequence[float]) -> list[float]:
    """Ranks from 1; equal values share the mean of their ranks."""
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks = [0.0] * len(values)
    first = 0
    while first < len(order):
        last = first
        while last + 1 < len(order) and values[order[last + 1]] == values[order[first]]:
            last += 1
        for place in range(first, last + 1):
            ranks[order[place]] = (first + last) / 2 + 1
        first = last + 1
    return ranks
