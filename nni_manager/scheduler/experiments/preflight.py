"""Preflight of adapters before an experiment is created, the plan of its first jobs, and the host of an adapter without
a loop, which also serves clean-up."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from nni_manager.config import admission, credentials
from nni_manager.domain.errors import BadCredentials, InvalidInput, NniManagerError, PlatformUnavailable
from nni_manager.domain.experiment import ExperimentSpec, ExperimentWarning, Json, PlatformSpec
from nni_manager.platform_kit import registry
from nni_manager.platform_kit.connections import Connections
from nni_manager.platform_kit.contract import (
    TIME_LIMITS_S,
    Delivery,
    Host,
    JobPlan,
    PreflightFinding,
    Severity,
)
from nni_manager.platform_kit.secret_texts import PrivateText
from nni_manager.scheduler.daemon_warnings import DaemonWarnings
from nni_manager.scheduler.experiments.submission import Submission
from nni_manager.store.folder import Folder
from nni_manager.store.private import ServiceText


def standalone_host(
    experiment_id: str,
    service: str,
    folder: Path,
    connections: Connections,
    storage: Json | None = None,
    storage_key: str = "",
    environment: Mapping[str, str] | None = None,
) -> Host:
    """A host that stores nothing.

    `folder`: the experiment's, which may not exist. `storage`: shared storage with secrets filled in. `storage_key`: of
    an experiment that may have folders on storage. `environment`: that trials on this machine begin with.
    """
    return Host(
        experiment_id=experiment_id,
        service=service,
        wake=lambda _: None,
        deliver=_deliver,
        followed=_followed,
        connections=connections,
        folder=folder,
        code=partial(_code, folder, service),
        register=_nothing,
        exited=_nothing,
        shared_storage=lambda: storage,
        private=_private(folder, service),
        storage_key=storage_key,
        caller_environment=environment,
    )


def _private(folder: Path, service: str) -> PrivateText:
    """The service's private text in the experiment's folder; not stored if there is no folder."""
    return ServiceText(Folder(folder).private, service) if folder.is_dir() else PrivateText()


async def _deliver(*_: object, **__: object) -> Delivery:
    return Delivery(resend=False)


async def _followed(_: object) -> dict[str, dict[str, int]]:
    return {}


async def _code(folder: Path, service: str) -> Path:
    """The code archive of the service. Raises InvalidInput without one."""
    code = Folder(folder).code
    for packed in (*(code / service).glob("*.tar.gz"), *code.glob("*.tar.gz")):
        return packed
    raise InvalidInput("the experiment is not at work, and has no code to send")


async def _nothing(*_: object, **__: object) -> None:
    pass


log = logging.getLogger(__name__)

#: Codes of warnings.
SERVICE_AWAY = "SERVICE_AWAY"
PREFLIGHT = "PREFLIGHT"

Findings = Mapping[str, Sequence[PreflightFinding]]


async def look(
    spec: ExperimentSpec,
    secrets: Mapping[str, str],
    connections: Connections,
    folder: Folder,
    environment: Mapping[str, str] | None,
) -> Findings:
    """Service → findings, asked concurrently. `environment`: its creator's; None: missing.

    Raises InvalidInput for a finding of severity WRONG.
    """
    storage = credentials.filled_storage(spec, secrets)

    def host(service: PlatformSpec) -> Host:
        return standalone_host(
            folder.path.name, service.service, folder.path, connections, storage, environment=environment
        )

    answers = await asyncio.gather(*(ask(service, secrets, host(service)) for service in spec.platforms))
    found = {service.service: answer for service, answer in zip(spec.platforms, answers, strict=True)}
    wrong = [
        f"trainingService {name}: {_sentence(finding)}"
        for name, findings in found.items()
        for finding in findings
        if finding.severity is Severity.WRONG
    ]
    if wrong:
        raise InvalidInput("; ".join(wrong))
    return found


async def ask(service: PlatformSpec, secrets: Mapping[str, str], host: Host) -> Sequence[PreflightFinding]:
    """The findings of one service. `secrets`: reference → value. Never raises: an error is a finding."""
    limit_s = TIME_LIMITS_S["preflight"]
    try:
        async with asyncio.timeout(limit_s):
            return await registry.adapter_of(service)(credentials.adapter_config(service, secrets), host).preflight()
    except TimeoutError:
        return [_finding(Severity.AWAY, f"no answer within {limit_s:.0f} s")]
    except PlatformUnavailable as error:
        return [_finding(Severity.AWAY, str(error))]
    except (BadCredentials, InvalidInput) as error:
        return [_finding(Severity.WRONG, str(error))]
    except Exception as error:
        log.exception("the preflight of %s failed", service.service, extra={"action": "barrier"})
        return [_finding(Severity.WARNING, f"the platform's adapter failed: {error!r}")]


def warn(findings: Findings, warnings: DaemonWarnings, experiment_id: str) -> None:
    """Sets warnings for findings that do not refuse the experiment."""
    for name, found in findings.items():
        away = [_sentence(one) for one in found if one.severity is Severity.AWAY]
        if away:
            message = f"{name} cannot be asked now, and the experiment waits for it: {'; '.join(away)}"
            warnings.set(experiment_id, ExperimentWarning(code=SERVICE_AWAY, message=message), name)
        doubtful = [_sentence(one) for one in found if one.severity is Severity.WARNING]
        if doubtful:
            message = f"{name}: {'; '.join(doubtful)}"
            warnings.set(experiment_id, ExperimentWarning(code=PREFLIGHT, message=message), name)


def is_over(warnings: DaemonWarnings, experiment_id: str, service: str) -> None:
    """Clears the warning, as the service was reached."""
    warnings.clear(experiment_id, SERVICE_AWAY, service)


def _finding(severity: Severity, sentence: str) -> PreflightFinding:
    return PreflightFinding(severity=severity, subject="preflight", sentence=sentence)


def _sentence(finding: PreflightFinding) -> str:
    return f"{finding.subject}: {finding.sentence}" + (f"; {finding.fix}" if finding.fix else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServicePlan:
    """The plan of one training service for the first trials."""

    service: str
    platform: str
    #: Number of trials planned: the most that may run there at a time.
    trials: int
    #: None: the platform places jobs itself, or could not be asked.
    plan: JobPlan | None
    #: Why it could not be asked; empty: it could.
    trouble: str = ""


async def plan_jobs(submission: Submission, connections: Connections) -> Sequence[ServicePlan]:
    """A plan for each service, in config order.

    Raises InvalidInput for what `create` would refuse.
    """
    spec, secrets, id = submission.spec, submission.secrets, submission.id
    await asyncio.to_thread(admission.check, spec)
    folder = Path(spec.working_directory) / id
    await look(spec, secrets, connections, Folder(folder), submission.environment)
    storage = credentials.filled_storage(spec, secrets)

    async def ask(service: PlatformSpec) -> ServicePlan:
        host = standalone_host(id, service.service, folder, connections, storage)
        return await _ask_plan(spec, service, secrets, host)

    return await asyncio.gather(*map(ask, spec.platforms))


async def _ask_plan(spec: ExperimentSpec, service: PlatformSpec, secrets: Mapping[str, str], host: Host) -> ServicePlan:
    trials = min(spec.trial_concurrency, service.trial_concurrency or spec.trial_concurrency)
    trials = trials if spec.max_trial_number is None else min(trials, spec.max_trial_number)
    plan, trouble = None, ""
    try:
        async with asyncio.timeout(TIME_LIMITS_S["plan"]):
            async with registry.adapter_of(service)(credentials.adapter_config(service, secrets), host) as platform:
                plan = await platform.plan(trials)
    except TimeoutError:
        trouble = f"no answer within {TIME_LIMITS_S['plan']:.0f} s"
    except NniManagerError as error:
        trouble = str(error)
    except Exception as error:
        log.exception("the plan of %s failed", service.service, extra={"action": "barrier"})
        trouble = f"the platform's adapter failed: {error!r}"
    return ServicePlan(service=service.service, platform=service.name, trials=trials, plan=plan, trouble=trouble)
