"""A job that does what it is told, for worlds with jobs that are processes of this machine."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

#: Seconds.
PATIENCE_S = 20.0
#: A script for /bin/sh. Does what comes through the pipe `orders`, and says so in the pipe `answers`, both in its
#: output folder. Ends when no process holds `orders` open.
SCRIPT = """
echo started >> "$NNI_OUTPUT_DIR/starts"
exec 3< "$NNI_OUTPUT_DIR/orders" 4> "$NNI_OUTPUT_DIR/answers"
while read -r order text <&3; do
    case $order in
        exit) [ "$text" = 0 ] || echo "it broke" >&2; exit "$text" ;;
        print) echo "$text" ;;
        report) echo "$text" >> "$NNI_OUTBOX" ;;
        environment) env -0 > "$NNI_OUTPUT_DIR/shown" ;;
        show) cat "$text" > "$NNI_OUTPUT_DIR/shown" ;;
    esac
    echo done >&4
done
"""


class Pipes:
    """Both pipes of an obedient job. Open for reading and writing, so that neither side waits for the other."""

    def __init__(self, directory: Path) -> None:
        """`directory`: the job's output folder, which is made here."""
        directory.mkdir(parents=True)
        self._orders = _pipe(directory / "orders")
        self._answers = _pipe(directory / "answers")
        self._answered: asyncio.Queue[None] = asyncio.Queue()
        asyncio.get_running_loop().add_reader(self._answers, self._read)

    def order(self, text: str) -> None:
        os.write(self._orders, f"{text}\n".encode())

    async def tell(self, text: str) -> None:
        """Returns when it is done."""
        self.order(text)
        await asyncio.wait_for(self._answered.get(), PATIENCE_S)

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._answers)
        os.close(self._orders)
        os.close(self._answers)

    def _read(self) -> None:
        for _ in os.read(self._answers, 4096).splitlines():
            self._answered.put_nowait(None)


def _pipe(path: Path) -> int:
    os.mkfifo(path)
    return os.open(path, os.O_RDWR | os.O_NONBLOCK)


async def ended(pid: int) -> None:
    """Waits for the end of any process."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    loop, gone = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, gone.set)
    try:
        await asyncio.wait_for(gone.wait(), PATIENCE_S)
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
