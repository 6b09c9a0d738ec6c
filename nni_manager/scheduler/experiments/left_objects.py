"""Leftover objects on training services, found by asking the services: the experiments may be unknown here, as their
folders were lost or another manager made them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nni_manager.config import credentials
from nni_manager.domain.errors import NniManagerError
from nni_manager.domain.experiment import PlatformSpec
from nni_manager.platform_kit import registry
from nni_manager.platform_kit.connections import Connections
from nni_manager.platform_kit.contract import TIME_LIMITS_S, LeftObject
from nni_manager.scheduler.experiments.preflight import standalone_host
from nni_manager.scheduler.experiments.submission import Submission

if TYPE_CHECKING:
    from nni_manager.scheduler.experiments.supervisor import Supervisor

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The leftovers on one training service."""

    service: str
    platform: str
    #: Identity of this manager.
    identity: str
    objects: Sequence[LeftObject] = ()
    #: Why it could not be asked, or not all objects be removed; empty: no problem.
    trouble: str = ""


async def find(submission: Submission, supervisor: Supervisor, remove: Collection[str] | None) -> Sequence[Found]:
    """Finds leftovers of experiments that are not open here, on the services of a config that support it. With `remove`
    (ids): removes and returns only theirs."""
    async with AsyncExitStack() as stack:
        for id in sorted(set(remove or ())):  # prevents a resume meanwhile
            await stack.enter_async_context(supervisor.turn(id))
        at_work = await supervisor.ids_at_work()
        return await _find(submission, supervisor.shared.connections, at_work, remove)


async def _find(
    submission: Submission, connections: Connections, at_work: Collection[str], remove: Collection[str] | None
) -> Sequence[Found]:
    able = [service for service in submission.spec.platforms if registry.find(service.name).finds_left]
    folder = Path(submission.spec.working_directory) / submission.id  # which is never made

    async def one(service: PlatformSpec) -> Found:
        host = standalone_host(submission.id, service.service, folder, connections)
        objects: Sequence[LeftObject] = ()
        trouble, limit_s = "", TIME_LIMITS_S["clean for good"]
        try:
            async with asyncio.timeout(limit_s):
                platform = registry.adapter_of(service)(credentials.adapter_config(service, submission.secrets), host)
                objects = await platform.find_left(at_work, remove)
        except TimeoutError:
            trouble = f"no answer within {limit_s:.0f} s"
        except NniManagerError as error:
            trouble = str(error)
        except Exception as error:
            log.exception("what was left on %s", service.service, extra={"action": "barrier"})
            trouble = f"the platform's adapter failed: {error!r}"
        return Found(
            service=service.service,
            platform=service.name,
            objects=objects,
            trouble=trouble,
            identity=connections.identity,
        )

    return await asyncio.gather(*map(one, able))
