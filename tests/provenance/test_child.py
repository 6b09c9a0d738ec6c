"""A child process whose output is read in part."""

from __future__ import annotations

import asyncio
import os
import sys

import pytest

from nni_manager.provenance import child

pytestmark = pytest.mark.unit

_ENDLESS = "import os\nwhile True: os.write(1, bytes(65536))"


async def test_endless_output_is_cut_and_process_ended() -> None:
    for _ in range(20):  # whether asyncio has paused the pipe at that moment is chance
        async with asyncio.timeout(10):
            found = await child.read(
                (sys.executable, "-c", _ENDLESS), directory="/", environment=dict(os.environ), most=2**20
            )
        assert found.is_cut and len(found.data) == 2**20
