"""The copies of logs that only a service has: the last of each, within what is kept of an attempt."""

from __future__ import annotations

from pathlib import Path

import pytest

from nni_manager.domain.job import JobHandle
from nni_manager.scheduler.turns import forgetting
from trial_runner.protocol import LOG_FILES

pytestmark = pytest.mark.unit


def sizes_in(folder: Path) -> list[int]:
    return [path.stat().st_size for path in folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize(("most", "each"), [(3_000, 1_000), (100 * 2**20, forgetting.KEPT_BYTES)])
async def test_log_copy_is_limited_to_its_share(tmp_path: Path, most: int, each: int) -> None:
    handle = JobHandle(platform="openpai", version=1, job_name="nni_exp_abcd1234_trial_abcde")
    asked = []

    async def read_file(_: JobHandle, name: str, offset: int, limit: int) -> bytes:
        asked.append((offset, limit))
        return b"x" * limit + name.encode() * limit  # twice as much, and more

    await forgetting.keep_logs(tmp_path, [handle], read_file, most)
    assert sizes_in(tmp_path) == [each] * len(LOG_FILES) and set(asked) == {(-each, each)}
