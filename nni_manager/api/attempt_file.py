"""A file of an attempt: from its folder on this machine, or from its training service where it is not here."""

from __future__ import annotations

from fastapi.responses import StreamingResponse

from nni_manager.api import logs
from nni_manager.api.context import ApiContext
from nni_manager.domain.errors import NotFound
from nni_manager.domain.ids import attempt_directory
from nni_manager.domain.job import JobHandle
from nni_manager.scheduler.turns.job_logs import ReadFile
from nni_manager.store import jobs


async def stretch(
    context: ApiContext, id: str, trial_id: str, attempt: int, name: str, offset: int, limit: int | None
) -> StreamingResponse:
    """As `log_file.stretch`. Raises NotFound, PlatformUnavailable."""
    trials = (await context.service.entry(id)).folder.trials
    try:
        return await logs.file_response(trials, f"{attempt_directory(trial_id, attempt)}/{name}", offset, limit)
    except NotFound:
        job = await _job(context, id, trial_id, attempt)
        if job is None:
            raise
        return await logs.service_response(*job, name, offset, limit)


async def _job(context: ApiContext, id: str, trial_id: str, attempt: int) -> tuple[JobHandle, ReadFile] | None:
    """Whom to ask for what is not here; None: nobody can tell."""
    experiment = context.service.at_work(id)
    if experiment is None:
        return None
    found = await experiment.database.read(lambda c: jobs.open_handle(c, trial_id, attempt))
    service = experiment.loop.services.get(found[0]) if found is not None else None
    if found is None or service is None or not service.platform.capabilities.reads_files:
        return None
    return found[1], service.read_file
