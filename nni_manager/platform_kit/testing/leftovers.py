"""Leftovers of an adapter in this process: tasks, threads, open files and connections."""

from __future__ import annotations

import asyncio
import os
import threading

_LOOK_AGAIN_S = 0.01
_OF_LOOPS = ("asyncio_", "uvloop_")


def leftovers() -> frozenset[str]:
    """The leftovers of this process now, a line for each, the same as long as it lives. Linux only."""
    return frozenset((*_tasks(), *_threads(), *_descriptors()))


async def new_leftovers(before: frozenset[str], patience_s: float) -> frozenset[str]:
    """Leftovers that were not there before, once there are none or `patience_s` have passed: closing takes a moment."""
    for _ in range(int(patience_s / _LOOK_AGAIN_S)):
        if not leftovers() - before:
            break
        await asyncio.sleep(_LOOK_AGAIN_S)  # nothing tells when a descriptor is closed
    return leftovers() - before


def _tasks() -> list[str]:
    return [f"task {task.get_name()}" for task in asyncio.all_tasks()]


def _threads() -> list[str]:
    # a loop's own executor keeps its threads
    return [f"thread {thread.name}" for thread in threading.enumerate() if not thread.name.startswith(_OF_LOOPS)]


def _descriptors() -> list[str]:
    found = []
    for number in os.listdir("/proc/self/fd"):
        try:
            found.append(f"descriptor {number} {os.readlink(f'/proc/self/fd/{number}')}")
        except FileNotFoundError:  # the one that lists
            continue
    return found
