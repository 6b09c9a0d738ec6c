"""Records the data needed to repeat a new experiment, in the background: it neither delays nor fails the start."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from nni_manager.domain.errors import NniManagerError
from nni_manager.platform_kit.tasks import ended
from nni_manager.provenance.collection import Asked, collect
from nni_manager.scheduler.experiments.submission import Submission

log = logging.getLogger(__name__)

#: Stores the record of the experiment with this id.
Write = Callable[[str, Mapping[str, Any]], Awaitable[None]]


class ProvenanceRecorder:
    """Used from one event loop; `close` cancels collections."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def begin(self, submission: Submission) -> None:
        """Records the caller's data, or collects it here; does not wait."""
        id_ = submission.id
        task = asyncio.create_task(self._record(submission), name=f"provenance {id_}")
        self._tasks[id_] = task
        task.add_done_callback(lambda _: self._tasks.pop(id_, None))

    async def settled(self, id: str) -> None:
        """Returns once nothing is being collected for this experiment."""
        if (task := self._tasks.get(id)) is not None:
            await asyncio.wait({task})

    async def close(self) -> None:
        """Idempotent."""
        await ended(*self._tasks.values())

    async def _record(self, submission: Submission) -> None:
        spec = submission.spec
        asked = Asked(
            code_directory=spec.trial_code_directory,
            python=submission.interpreter or sys.executable,
            environment=submission.environment,
            secrets=tuple(submission.secrets.values()),
            tuner_arguments=spec.tuner.class_args,
        )
        try:
            given = submission.provenance
            record = await collect(asked) if given is None else given
            await self._write(submission.id, {**record, **submission.file_record})
        except NniManagerError as error:
            log.info("the data needed to repeat experiment %s was not recorded: %s", submission.id, error)
        except Exception:
            log.exception("the data needed to repeat experiment %s was not recorded", submission.id)
