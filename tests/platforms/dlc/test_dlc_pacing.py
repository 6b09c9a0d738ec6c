"""Two experiments of one access key keep their pace, by the fake's log, also around an outage: in virtual time."""

from __future__ import annotations

from pathlib import Path

import pytest
from virtual_dlc import VirtualDlc

from nni_manager.platforms.dlc import account
from nni_manager.platforms.dlc.platform import DlcPlatform
from nni_manager.shared_storage.pull import Pull
from tests.platforms.paced_account import JOBS, RUN_S, NothingRead, check_lag, most_in, now_s, run_two

pytestmark = [pytest.mark.contract, pytest.mark.looptime, pytest.mark.thorough]
_LIST_LAG_S = 5.0
_KINDS = (
    (("CreateJob", "StopJob"), account.WRITES_A_SECOND, account.WRITE_BURST),
    (("ListJobs", "GetJob"), account.READS_A_SECOND, account.READ_BURST),
)


@pytest.mark.timeout(300)
async def test_two_experiments_keep_the_pace_of_their_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists lag by 5 s, and flow control refuses what would go beyond both paces' worst second."""
    monkeypatch.setattr(Pull, "is_over", NothingRead.is_over)
    async with VirtualDlc(tmp_path, monkeypatch, length_s=RUN_S) as world:
        faults, shift_s = world.service.faults, now_s() - world.now_s()
        faults.list_lag_s, faults.calls_a_second = _LIST_LAG_S, 15

        def set_outage(is_out: bool) -> None:
            faults.outage = "hang up" if is_out else ""

        slow_poll_s = DlcPlatform.capabilities.slow_poll_s
        experiments = await run_two(tmp_path, lambda recorder: world.built(recorder), set_outage, poll_s=slow_poll_s)
        jobs = world.service.jobs.by_id.values()
        assert [job.status for job in jobs] == ["Succeeded"] * 2 * JOBS
        for kinds, a_second, burst in _KINDS:
            times = [moment for moment, action in world.service.calls if action in kinds]
            for window_s in (1.0, 60.0):
                assert most_in(times, window_s) <= burst + a_second * window_s + 1, "and one that took longer to arrive"
        ended_s = {job.name: (job.since("Succeeded") or 0) + shift_s for job in jobs}
        check_lag(experiments, ended_s, 2 * slow_poll_s + _LIST_LAG_S)
