"""NNI's assessors in NNI's own Python, on the same learning curves as ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.assessors.__main__ import of_nni, ours, outcomes
from tests.benchmarks.assessors.replay import curves

pytestmark = pytest.mark.upstream


def test_medianstop_stops_what_nni_stops(nni3: Path) -> None:
    known = curves()[::3]
    for mine, theirs in zip(
        outcomes(dict(ours())["Medianstop"], known, 3), outcomes(of_nni(nni3, "Medianstop"), known, 3), strict=True
    ):
        assert (mine.bad_stopped, mine.saved, mine.best_kept) == (theirs.bad_stopped, theirs.saved, theirs.best_kept)
