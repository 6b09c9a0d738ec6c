"""Makes the job of an attempt: what the plan decided, and what only this process knows of the experiment."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from nni_manager.domain.experiment import PlatformSpec
from nni_manager.domain.job import JobSpec
from nni_manager.platform_kit.payload import job_spec
from nni_manager.scheduler.decisions import Submit
from nni_manager.scheduler.live_spec import LiveSpec
from nni_manager.scheduler.runner_door import RunnerDoor, runner_environment


class JobFactory:
    """`nonce`: the experiment's own, see `JobSpec.nonce`."""

    def __init__(
        self, *, experiment_id: str, spec: LiveSpec, folder_of_trials: Path, caller_environment: Mapping[str, str],
        runner_door: RunnerDoor, nonce: str,
    ) -> None:  # fmt: skip
        self._experiment_id = experiment_id
        self._spec = spec
        self._folder_of_trials = folder_of_trials
        self._caller_environment = caller_environment
        self._runner_door = runner_door
        self._nonce = nonce

    async def make(self, call: Submit, service: PlatformSpec, *, has_runner: bool) -> JobSpec:
        """`service`: where it is to run; `has_runner`: a trial runner reports for it, and must be told where.

        Raises PlatformUnavailable while the trial listener cannot be opened.
        """
        if has_runner:
            await self._runner_door.open(self._experiment_id)
        return job_spec(
            self._spec.now, service=service, experiment_id=self._experiment_id,
            folder_of_trials=self._folder_of_trials, caller_environment=self._caller_environment,
            job_name=call.job_name, trial_id=call.trial_id, attempt=call.attempt, sequence_id=call.sequence_id,
            record=call.record, stored=call.stored, is_repeat=call.is_repeat, intended_ms=call.intended_ms,
            nonce=self._nonce, runner_environment=self._runner_environment(call, service) if has_runner else {},
        )  # fmt: skip

    def _runner_environment(self, call: Submit, service: PlatformSpec) -> dict[str, str]:
        return runner_environment(
            self._runner_door, manager_ip=self._manager_ip(service), experiment_id=self._experiment_id,
            trial_id=call.trial_id, attempt=call.attempt, job_name=call.job_name,
        )  # fmt: skip

    def _manager_ip(self, service: PlatformSpec) -> str:
        own = service.settings.get("nniManagerIp")
        return own if isinstance(own, str) else self._spec.now.manager_ip
