"""What experiments that are not at work here left at training services, as the services tell it: the folders of these
experiments may be lost, and another manager may have made them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nni_manager.config import credentials
from nni_manager.domain.errors import NniManagerError
from nni_manager.domain.experiment import ExperimentSpec, PlatformSpec
from nni_manager.platform_kit import registry
from nni_manager.platform_kit.connections import Connections
from nni_manager.platform_kit.contract import TIME_LIMITS_S, LeftObject
from nni_manager.scheduler.experiments.preflight import standalone_host

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What was found at one training service."""

    service: str
    platform: str
    objects: Sequence[LeftObject] = ()
    #: Why it could not be asked, or not all be removed; empty: it was.
    trouble: str = ""


async def find(
    spec: ExperimentSpec, secrets: Mapping[str, str], id: str, connections: Connections, at_work: Collection[str],
    remove: Collection[str] | None,
) -> Sequence[Found]:  # fmt: skip
    """Asks each service that can say what was left there. `id`: of no experiment; `at_work`, `remove`: as of
    `Platform.find_left`."""
    able = [service for service in spec.platforms if registry.find(service.name).finds_left]
    folder = Path(spec.working_directory) / id

    async def one(service: PlatformSpec) -> Found:
        host = standalone_host(id, service.service, folder, connections)
        objects: Sequence[LeftObject] = ()
        trouble, limit_s = "", TIME_LIMITS_S["clean for good"]
        try:
            async with asyncio.timeout(limit_s):
                platform = registry.adapter_of(service)(credentials.filled(service, secrets), host)
                objects = await platform.find_left(at_work, remove)
        except TimeoutError:
            trouble = f"no answer within {limit_s:.0f} s"
        except NniManagerError as error:
            trouble = str(error)
        except Exception as error:
            log.exception("what was left on %s", service.service, extra={"action": "barrier"})
            trouble = f"the platform's adapter failed: {error!r}"
        return Found(service=service.service, platform=service.name, objects=objects, trouble=trouble)

    return await asyncio.gather(*map(one, able))
