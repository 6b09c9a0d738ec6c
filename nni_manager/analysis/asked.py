"""A question with all that an answer is computed from."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nni_manager.analysis.columns.trial_set import TrialSet
from nni_manager.analysis.query import Query


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A question about one experiment; `connection` is in the transaction in which `trials` were read."""

    trials: TrialSet
    query: Query
    connection: sqlite3.Connection
    now_ms: int


#: Computes the fields of an answer. A field ``state`` that is ``computing`` says that it will change by itself.
Answerer = Callable[[Asked], dict[str, Any]]
