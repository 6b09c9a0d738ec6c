"""The scripted cluster as a batch system: it queues jobs, announces their end, runs them again and overlooks them."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Mapping
from typing import Any, ClassVar

import psutil
from scripted_world import FAR_S, ScriptedWorld

from nni_manager.domain.job import JobHandle
from nni_manager.platform_kit.testing import Feature
from nni_manager.platforms.scripted.launch import ARCHIVE
from nni_manager.platforms.scripted.platform import ScriptedPlatform
from tests.platforms.obedient_job import PATIENCE_S
from trial_runner import protocol

#: Seconds for which the list must lack a job before it is lost: longer than a few observations.
LOSS_S = 3.0
_CODES = ("QUEUED", "HELD")


class BatchWorld(ScriptedWorld):
    absent: ClassVar[Mapping[Feature, str]] = {}

    def make(self, **settings: Any) -> ScriptedPlatform:
        rule = {"delay": FAR_S, "requeue": FAR_S}
        return self._made(self.recorder, settings or self._settings(rule, confirmLoss=LOSS_S))

    async def hold_back(self, handle: JobHandle, number: int) -> str:
        sentence = f"reason number {number}"
        self._change_rule(handle, pendingReason=[{"sentence": sentence, "code": _CODES[number]}])
        return sentence

    async def exceed_limit(self, handle: JobHandle) -> None:
        self._change_rule(handle, timedOut=True)

    async def announce_end(self, handle: JobHandle) -> None:
        self._runner(handle).send_signal(signal.SIGUSR1)

    async def knows_of_end(self, handle: JobHandle) -> bool:
        return (self.directory(handle.job_name) / protocol.ENDING_FILE).exists()

    async def run_again(self, handle: JobHandle) -> None:
        starts = self.directory(handle.job_name) / "starts"
        before = len(starts.read_text().splitlines())
        self._change_rule(handle, requeue=0.0)
        self._runner(handle).send_signal(signal.SIGTERM)
        async with asyncio.timeout(PATIENCE_S):
            while len(starts.read_text().splitlines()) == before:  # noqa: ASYNC110 (nothing tells of a new line)
                await asyncio.sleep(0.01)

    async def overlook(self, handle: JobHandle, is_listed: bool) -> None:
        self._change_rule(handle, overlooked=None if is_listed else {})

    def _runner(self, handle: JobHandle) -> psutil.Process:
        below = psutil.Process(self.pid(handle)).children(recursive=True)
        return next(one for one in below if one.name().startswith("python") and ARCHIVE in " ".join(one.cmdline()))
