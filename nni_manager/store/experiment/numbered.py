"""Trials by their numbers."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Any

from nni_manager.store.experiment import answers


def trials(connection: sqlite3.Connection, numbers: Sequence[int]) -> list[dict[str, Any]]:
    """The trials with these numbers as the API answers them, in the order of the numbers; unknown ones are left out."""
    query = "SELECT sequence_id, id FROM trials WHERE sequence_id IN (SELECT value FROM json_each(?))"
    ids = dict(connection.execute(query, (json.dumps(list(numbers)),)).fetchall())
    return [json.loads(answers.trial(connection, ids[number])) for number in numbers if number in ids]
