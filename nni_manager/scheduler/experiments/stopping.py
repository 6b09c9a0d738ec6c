"""Stops experiments: open ones by their loops, and those that could not be opened."""

from __future__ import annotations

import asyncio

from nni_manager.domain.errors import Conflict, NniManagerError, SchemaRefused, StoreCorrupt, StoreUnavailable
from nni_manager.domain.experiment import ExperimentStatus, HoldCode
from nni_manager.machines.keeper import orphaned_jobs
from nni_manager.scheduler.experiments import experiment_folder
from nni_manager.scheduler.experiments.open_experiment import OpenExperiment
from nni_manager.scheduler.experiments.supervisor import Supervisor
from nni_manager.store.experiment import experiments
from nni_manager.store.index import index
from nni_manager.store.index.index import Entry


class Stopping:
    """Used by `ExperimentCommands` only; its methods list the errors."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._shared = supervisor.shared

    async def stop(self, id: str) -> None:
        """Stops the trials and closes the experiment; returns after that. Ignores a closed one."""
        async with self._supervisor.turn(id):
            experiment = self._supervisor.get(id)  # does not need the index
            if experiment is None:
                return await self._close_unopened(await self._supervisor.entry(id))
            try:
                await self._begin(experiment)
            except StoreCorrupt:
                experiment.start_again()
                await self._supervisor.closed(id)  # its loop gives up
                return await self._close_unopened(await self._supervisor.entry(id))
        await self._finish(experiment)

    async def _begin(self, experiment: OpenExperiment) -> None:
        """Stores the stop. Raises StoreError."""
        now_ms = experiment.loop.now_ms
        try:
            await experiment.command(
                lambda c: experiments.set_status(c, ExperimentStatus.STOPPING, now_ms), is_durable=True
            )
        except StoreUnavailable as error:
            raise StoreUnavailable(
                f"{error}; the trials of experiment {experiment.id} continue meanwhile: if they fill the disk, free"
                " space, or end their processes yourself"
            ) from error
        experiment.start_again()

    async def _finish(self, experiment: OpenExperiment) -> None:
        """Returns when the experiment is closed. Raises NniManagerError if its loop fails."""
        await self._supervisor.closed(experiment.id)
        while self._supervisor.get(experiment.id) is experiment:
            if experiment.fault:
                await self._end_jobs(experiment)
            await self._supervisor.closed(experiment.id)  # another call restarted the loop

    async def stop_all(self) -> tuple[str, ...]:
        """Stops all experiments, viewed ones included; returns their ids."""
        ids = self._supervisor.to_stop
        outcomes = await asyncio.gather(*map(self.stop, ids), return_exceptions=True)
        if not ids:
            self._supervisor.check_empty()
        for outcome in outcomes:  # a failure does not affect the others
            if isinstance(outcome, BaseException):
                raise outcome
        return ids

    async def close_all(self, id: str) -> None:
        """Closes the resources of an experiment without a loop: its database for reading, its endpoint."""
        self._supervisor.give_up(id)
        await self._supervisor.closed_ones.release(id)
        await self._shared.endpoints.close(id)
        self._supervisor.note_closed(id)

    async def _end_jobs(self, experiment: OpenExperiment) -> None:
        """Ends the jobs here of an experiment whose loop failed, and raises its error."""
        fault = experiment.fault
        await orphaned_jobs.end(self._shared.keeper, experiment.id, forget=False)
        raise NniManagerError(
            f"experiment {experiment.id} is still being stopped, but its trials on this machine have ended: {fault}"
        )

    async def _close_unopened(self, entry: Entry) -> None:
        """Closes an experiment that is viewed, or failed to open. Ignores a stopped one."""
        hold = self._supervisor.not_opened.get(entry.id)
        if entry.status is not ExperimentStatus.VIEWED and hold is None:
            return
        if hold is not None:  # their results are read when it can be opened again
            await _require_known(entry)
            await orphaned_jobs.end(self._shared.keeper, entry.id, forget=False)
        status, ended_ms = ExperimentStatus.STOPPED, entry.ended_ms or self._shared.clock()
        comes_back = hold is not None and hold.code is HoldCode.STORE_UNAVAILABLE
        await self._supervisor.write(lambda c: index.set_status(c, entry.id, status, ended_ms, is_open=comes_back))
        await self.close_all(entry.id)
        if comes_back:
            self._supervisor.settle_in_background(entry.id)
        self._supervisor.check_empty()


async def _require_known(entry: Entry) -> None:
    """Raises Conflict if the experiment waits for the newer version that wrote its database. That version must handle
    the stop: otherwise it would count the trials as failed, as their jobs ended without a stored stop."""
    try:
        await asyncio.to_thread(experiment_folder.refuse_newer, entry.folder)
    except SchemaRefused as error:
        raise Conflict(f"experiment {entry.id} is not stopped, and its trials continue: {error}") from error
