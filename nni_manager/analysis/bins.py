"""Trials grouped by bins."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from nni_manager.analysis.columns.growing import Integers


def groups(bins: Integers, positions: Integers) -> Iterator[tuple[int, Integers]]:
    """(bin, its positions) of the bins that are not empty, in their order; bin -1 is none."""
    order = np.argsort(bins, kind="stable")
    ordered = bins[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-2))
    for start, end in pairwise([*starts.tolist(), len(ordered)]):
        if ordered[start] >= 0:
            yield int(ordered[start]), positions[order[start:end]]
