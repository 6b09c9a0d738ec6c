"""An experiment with several objectives: trials on the Pareto front, dominated ones, and constraint violations."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing

from nni_manager.store.folder import Folder
from tests.api.world import World
from tests.browser.charted import charted

GOALS = {"objectives": {"acc": "maximize", "ms": "minimize", "size": "minimize"}, "constraints": {"size": "<= 80"}}


async def with_objectives(world: World, id: str, count: int) -> None:
    folder = await charted(world, id, count)
    await asyncio.to_thread(_rewrite, folder)


def _rewrite(folder: Folder) -> None:
    with closing(sqlite3.connect(folder.database)) as connection, connection:
        (text,) = connection.execute("SELECT config FROM experiment").fetchone()
        connection.execute("UPDATE experiment SET config = ?", [json.dumps({**json.loads(text), **GOALS})])
        query = "SELECT id, sequence_id FROM trials WHERE status = 'SUCCEEDED' ORDER BY sequence_id"
        for id_, number in connection.execute(query).fetchall():
            acc = (number * 37 % 101) / 101
            result = {"default": acc, "acc": acc, "ms": 20 + number * 53 % 97 * acc, "size": number * 29 % 100}
            connection.execute(
                "UPDATE trials SET final_data = ?, final_value = ? WHERE id = ?", (json.dumps(result), acc, id_)
            )
