"""Job plans: where the first trials of an experiment would go if it were made now. Nothing is made or reserved."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nni_manager.config import admission, credentials
from nni_manager.domain.errors import NniManagerError
from nni_manager.domain.experiment import ExperimentSpec, PlatformSpec
from nni_manager.platform_kit import registry
from nni_manager.platform_kit.contract import TIME_LIMITS_S, Host, JobPlan
from nni_manager.scheduler.experiments.preflight import standalone_host

if TYPE_CHECKING:
    from nni_manager.scheduler.experiments.build import SharedParts

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServicePlan:
    """Of one training service."""

    service: str
    platform: str
    #: Trials that it was asked about: so many may run there at a time.
    trials: int
    #: None: it decides itself, or could not be asked.
    plan: JobPlan | None
    #: Why it could not be asked; empty: it could.
    trouble: str = ""


async def look(spec: ExperimentSpec, secrets: Mapping[str, str], id: str, shared: SharedParts) -> Sequence[ServicePlan]:
    """Each service by itself, in the order of the config. `id`: of no experiment. Raises InvalidInput."""
    admission.check(spec)
    folder = Path(spec.working_directory) / id
    storage = credentials.filled_storage(spec, secrets)

    async def ask(service: PlatformSpec) -> ServicePlan:
        host = standalone_host(id, service.service, folder, shared.connections, storage)
        return await _ask(spec, service, secrets, host)

    return await asyncio.gather(*map(ask, spec.platforms))


async def _ask(spec: ExperimentSpec, service: PlatformSpec, secrets: Mapping[str, str], host: Host) -> ServicePlan:
    trials = min(spec.trial_concurrency, service.trial_concurrency or spec.trial_concurrency)
    trials = trials if spec.max_trial_number is None else min(trials, spec.max_trial_number)
    plan, trouble = None, ""
    try:
        async with asyncio.timeout(TIME_LIMITS_S["plan"]):
            async with registry.adapter_of(service)(credentials.filled(service, secrets), host) as platform:
                plan = await platform.plan(trials)
    except TimeoutError:
        trouble = f"no answer within {TIME_LIMITS_S['plan']:.0f} s"
    except NniManagerError as error:
        trouble = str(error)
    except Exception as error:
        log.exception("the plan of %s failed", service.service, extra={"action": "barrier"})
        trouble = f"the platform's adapter failed: {error!r}"
    return ServicePlan(service=service.service, platform=service.name, trials=trials, plan=plan, trouble=trouble)
