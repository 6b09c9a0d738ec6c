"""The TensorBoards of a daemon. Each ends on request, with its experiment, with the daemon, or after an hour without a
connected browser."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import sqlite3
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from nni_manager.config.settings import own_environment
from nni_manager.domain.errors import Conflict, InvalidInput, NotFound, StoreCorrupt
from nni_manager.domain.experiment import ExperimentStatus
from nni_manager.platform_kit.tasks import ended
from nni_manager.scheduler.tensorboard import folders
from nni_manager.scheduler.tensorboard.board import Board, connected_ports, free_port
from nni_manager.scheduler.tensorboard.folders import TrialLogs
from nni_manager.store import private
from nni_manager.store.folder import Folder
from nni_manager.store.index.index import Entry

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Maximum number at a time, and maximum number of trials of one.
_MOST, _MOST_TRIALS = 8, 200
_IDLE_S, _LOOK_S = 3600.0, 30.0


class Experiments(Protocol):
    """Queries about experiments, as `ExperimentCommands` answers them."""

    async def entry(self, id: str) -> Entry: ...

    async def folder(self, id: str) -> Folder: ...

    async def read(self, id: str, function: Callable[[sqlite3.Connection], T]) -> T: ...


class TensorBoards:
    """Used from one event loop; `close` ends all."""

    def __init__(self, service: Experiments, data_directory: Path) -> None:
        self._service = service
        self._folder = data_directory / folders.FOLDER
        self._boards: dict[str, Board] = {}
        self._used_s: dict[str, float] = {}
        self._watching: asyncio.Task[None] | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self._turn = asyncio.Lock()
        self._is_closed = False

    def of(self, experiment_id: str) -> list[Board]:
        """The boards of an experiment, oldest first."""
        return [board for board in self._boards.values() if board.experiment_id == experiment_id]

    def get(self, experiment_id: str, id: str) -> Board:
        """Raises NotFound."""
        board = self._boards.get(id)
        if board is None or board.experiment_id != experiment_id:
            raise NotFound(f"cannot find TensorBoard {id!r} of experiment {experiment_id}; it may have ended")
        return board

    async def start(self, experiment_id: str, trial_ids: Sequence[str], port: int | None = None) -> Board:
        """Returns once it answers. Raises NotFound; InvalidInput if TensorBoard is missing, does not start, or no
        folder of these trials is on this machine; Conflict if there are too many."""
        logs = await self._logs(experiment_id, trial_ids)
        environment = await self._environment(experiment_id)
        program = _program(environment)
        async with self._turn:  # a port is taken before the next one is searched
            if len(self._boards) >= _MOST:
                raise Conflict(f"{len(self._boards)} TensorBoards are running; stop one first")
            board = await self._started(experiment_id, logs, port, program, environment)
        words = (board.id, experiment_id, board.url)
        log.info("TensorBoard %s of experiment %s: %s", *words, extra={"action": "tensorboard"})
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._look_again_and_again(), name="tensorboards")
        return board

    async def _started(
        self,
        experiment_id: str,
        logs: Sequence[TrialLogs],
        wanted: int | None,
        program: str,
        environment: Mapping[str, str],
    ) -> Board:
        """A board that answers; on the next port if another program took the first one meanwhile."""
        taken = {board.port for board in self._boards.values()}
        while True:
            port = await asyncio.to_thread(free_port, taken, wanted)
            if self._is_closed:
                raise Conflict("the manager is ending")
            id_ = folders.new_id()
            board = Board(id_, experiment_id, logs, self._folder / id_, port)
            self._boards[id_], self._used_s[id_] = board, time.monotonic()
            try:
                await board.start(program, environment)
                return board
            except InvalidInput:
                self._forget(id_)
                if wanted is not None or not board.found_port_taken:
                    raise
                taken.add(port)
            except BaseException:
                self._forget(id_)
                raise

    async def stop(self, board: Board) -> None:
        self._forget(board.id)
        await board.close()

    async def stop_all(self, experiment_id: str) -> None:
        await asyncio.gather(*map(self.stop, self.of(experiment_id)))

    def before(self, callback: Callable[[str], None]) -> Callable[[str], None]:
        """A callback for a closed experiment: starts ending its TensorBoards, and calls `callback`."""

        def closed(experiment_id: str) -> None:
            if self.of(experiment_id):
                task = asyncio.create_task(self.stop_all(experiment_id), name=f"tensorboards of {experiment_id}")
                self._ending.add(task)
                task.add_done_callback(self._ending.discard)
            callback(experiment_id)

        return closed

    async def close(self) -> None:
        """Idempotent."""
        self._is_closed = True
        await ended(self._watching)
        await asyncio.gather(*map(self.stop, list(self._boards.values())), *self._ending)

    # Helpers

    async def _logs(self, experiment_id: str, trial_ids: Sequence[str]) -> list[TrialLogs]:
        if not 1 <= len(trial_ids) <= _MOST_TRIALS:
            raise InvalidInput(f"trials: select 1 to {_MOST_TRIALS} trials")
        trials = (await self._service.folder(experiment_id)).trials
        found = await self._service.read(experiment_id, lambda c: folders.find_logs(c, trials, trial_ids))
        here = [one for one in found if one.is_here]
        if not here:
            raise InvalidInput(
                "the TensorBoard logs of these trials, $NNI_OUTPUT_DIR/tensorboard, are not on the manager's machine;"
                f" run `nnictl trial download {experiment_id} -T {found[0].trial_id}` to copy a trial's files, and"
                " `tensorboard --logdir` to show them"
            )
        return here

    async def _environment(self, experiment_id: str) -> Mapping[str, str]:
        """The environment of the experiment's caller. If it is missing, the daemon's; also if the experiment is only
        viewed, as its folder may belong to another user, whose PATH leads to that user's programs."""
        entry = await self._service.entry(experiment_id)
        if entry.status is ExperimentStatus.VIEWED:
            return own_environment()
        try:
            kept = await asyncio.to_thread(private.load, entry.folder.private)
        except StoreCorrupt as error:
            log.warning("TensorBoard starts with the manager's environment: %s", error)
            return own_environment()
        return kept.environment or own_environment()

    async def _look_again_and_again(self) -> None:
        while self._boards:
            await asyncio.sleep(_LOOK_S)
            await self.look()

    async def look(self) -> None:
        """Ends boards without a connected browser for long, and forgets ended ones."""
        now_s, used = time.monotonic(), await asyncio.to_thread(connected_ports)
        for board in list(self._boards.values()):
            if board.id not in self._boards:
                continue  # stopped while another one ended
            if board.port in used:
                self._used_s[board.id] = now_s
            if board.has_ended or now_s - self._used_s[board.id] >= _IDLE_S:
                log.info(
                    "TensorBoard %s ends: no browser was connected for an hour",
                    board.id,
                    extra={"action": "tensorboard"},
                )
                await self.stop(board)

    def _forget(self, id: str) -> None:
        self._boards.pop(id, None)
        self._used_s.pop(id, None)


def _program(environment: Mapping[str, str]) -> str:
    """The program: on the caller's PATH, on the daemon's, or next to its Python. Raises InvalidInput."""
    beside = os.path.dirname(sys.executable)
    for path in (environment.get("PATH", os.defpath), os.environ.get("PATH", os.defpath), beside):
        if found := shutil.which("tensorboard", path=path):
            return found
    raise InvalidInput(
        "TensorBoard is not installed: the program `tensorboard` is not on the PATH of the experiment or of the"
        " manager; run `pip install tensorboard` in the environment that starts experiments, or in the manager's"
    )
