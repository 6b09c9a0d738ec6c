"""How a server of tests ends without leaving a connection open."""

from __future__ import annotations

import asyncio

#: Turns of the loop within which what was accepted is a connection, a task that serves it has begun, and one that was
#: aborted is closed: a task that has not begun closes nothing when it is cancelled.
TURNS = 10


async def stop_accepting(server: asyncio.Server) -> None:
    """Closes the server once all that it accepted are connections.

    Python before 3.12 leaves open what was accepted in the turn in which a server closes.
    """
    for listening in server.sockets:
        asyncio.get_running_loop().remove_reader(listening.fileno())
    await some_turns()
    server.close()


async def some_turns() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)
