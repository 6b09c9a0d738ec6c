"""The processes of the tests compute with one thread."""

from __future__ import annotations

import numpy as np
import pytest
from threadpoolctl import threadpool_info

pytestmark = pytest.mark.unit


def test_numerical_libraries_have_one_thread() -> None:
    """On a machine of one processor nothing else is possible."""
    np.linalg.cholesky(np.eye(4))
    assert [(one["internal_api"], one["num_threads"]) for one in threadpool_info() if one["num_threads"] != 1] == []
    assert threadpool_info(), "numpy's library is not known"
