"""Adapters without a loop, and their host: preflight before an experiment is created, the plan of its first jobs, and
leftovers on their services."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

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
    LeftObject,
    PreflightFinding,
    Severity,
)
from nni_manager.platform_kit.secret_texts import PrivateText
from nni_manager.scheduler.changes import DaemonWarnings
from nni_manager.scheduler.experiments.submission import Submission
from nni_manager.store.folder import Folder
from nni_manager.store.private import ServiceText

T = TypeVar("T")


def standalone_host(
    experiment_id: str,
    service: str,
    folder: Path,
    connections: Connections,
    storage: Json | None = None,
    storage_key: str = "",
    environment: Mapping[str, str] | None = None,
    *,
    may_try_jobs: bool = False,
) -> Host:
    """A host that stores nothing. `may_try_jobs`: as in `Host`.

    `folder`: the experiment's, which may not exist. `storage`: shared storage with secrets filled in. `storage_key`: of
    an experiment that may have folders on storage. `environment`: initial environment of trials on this machine.
    """
    return Host(
        experiment_id=experiment_id,
        service=service,
        wake=lambda _: None,
        deliver=_deliver,
        followed=_nothing_stored,
        stored=_nothing_stored,
        connections=connections,
        folder=folder,
        code=partial(_code, folder, service),
        register=_nothing,
        exited=_nothing,
        shared_storage=lambda: storage,
        private=ServiceText(Folder(folder).private, service) if folder.is_dir() else PrivateText(),
        storage_key=storage_key,
        caller_environment=environment,
        may_try_jobs=may_try_jobs,
    )


async def _deliver(*_: object, **__: object) -> Delivery:
    return Delivery(resend=False)


async def _nothing_stored(_: object) -> Mapping[str, Any]:
    return {}


async def _code(folder: Path, service: str) -> Path:
    """The code archive of the service. Raises InvalidInput without one."""
    code = Folder(folder).code
    for packed in (*(code / service).glob("*.tar.gz"), *code.glob("*.tar.gz")):
        return packed
    raise InvalidInput("the experiment is not running, and has no code to send")


async def _nothing(*_: object, **__: object) -> None:
    pass


log = logging.getLogger(__name__)

#: Codes of warnings.
SERVICE_AWAY = "SERVICE_AWAY"
PREFLIGHT = "PREFLIGHT"
#: Severity of findings → code of their warning, and its statement about the service.
_WARNED_OF = {
    Severity.AWAY: (SERVICE_AWAY, " is unreachable now, and the experiment waits for it"),
    Severity.WARNING: (PREFLIGHT, ""),
}

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
        for severity, (code, what) in _WARNED_OF.items():
            if told := [_sentence(one) for one in found if one.severity is severity]:
                warning = ExperimentWarning(code=code, message=f"{name}{what}: {'; '.join(told)}")
                warnings.set(experiment_id, warning, name)


def _finding(severity: Severity, sentence: str) -> PreflightFinding:
    return PreflightFinding(severity=severity, subject="preflight", sentence=sentence)


def _sentence(finding: PreflightFinding) -> str:
    return f"{finding.subject}: {finding.sentence}" + (f"; {finding.fix}" if finding.fix else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServicePlan:
    """The plan of one training service for the first trials."""

    service: str
    platform: str
    #: Number of planned trials: the maximum number that may run there at a time.
    trials: int
    #: None: the platform places jobs itself, or did not answer.
    plan: JobPlan | None
    #: Why it did not answer; empty: it did.
    trouble: str = ""


async def plan_jobs(submission: Submission, connections: Connections) -> Sequence[ServicePlan]:
    """A plan for each service, in config order.

    Raises InvalidInput for anything that `create` would refuse.
    """
    spec, secrets, id = submission.spec, submission.secrets, submission.id
    await asyncio.to_thread(admission.check, spec)
    folder = Path(spec.working_directory) / id
    await look(spec, secrets, connections, Folder(folder), submission.environment)
    storage = credentials.filled_storage(spec, secrets)

    async def one(service: PlatformSpec) -> ServicePlan:
        host = standalone_host(id, service.service, folder, connections, storage)
        trials = min(spec.trial_concurrency, service.trial_concurrency or spec.trial_concurrency)
        trials = trials if spec.max_trial_number is None else min(trials, spec.max_trial_number)
        plan, trouble = await asked("plan", service.service, _planned(service, secrets, host, trials))
        return ServicePlan(service=service.service, platform=service.name, trials=trials, plan=plan, trouble=trouble)

    return await asyncio.gather(*map(one, spec.platforms))


async def _planned(service: PlatformSpec, secrets: Mapping[str, str], host: Host, trials: int) -> JobPlan | None:
    async with registry.adapter_of(service)(credentials.adapter_config(service, secrets), host) as platform:
        return await platform.plan(trials)


async def asked(verb: str, service: str, asking: Awaitable[T]) -> tuple[T | None, str]:
    """(an adapter's answer, why there is none); an error is returned, not raised. `verb`: of `TIME_LIMITS_S`."""
    try:
        async with asyncio.timeout(TIME_LIMITS_S[verb]):
            return await asking, ""
    except TimeoutError:
        return None, f"no answer within {TIME_LIMITS_S[verb]:.0f} s"
    except NniManagerError as error:
        return None, str(error)
    except Exception as error:
        log.exception("'%s' of %s failed", verb, service, extra={"action": "barrier"})
        return None, f"the platform's adapter failed: {error!r}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOnService:
    """The leftovers on one training service."""

    service: str
    platform: str
    #: Identity of this manager.
    identity: str
    objects: Sequence[LeftObject] = ()
    #: Why it did not answer, or objects could not be removed; empty: no problem.
    trouble: str = ""


async def find_left(
    submission: Submission, connections: Connections, at_work: Collection[str], remove: Collection[str] | None
) -> Sequence[LeftOnService]:
    """Finds leftovers of experiments that are not `at_work` on a config's services. They may be unknown here, if their
    folders were lost or another manager created them. With `remove` (ids): removes and returns only theirs."""
    able = [service for service in submission.spec.platforms if registry.find(service.name).finds_left]
    folder = Path(submission.spec.working_directory) / submission.id  # never created

    async def ask(service: PlatformSpec) -> Sequence[LeftObject]:
        host = standalone_host(submission.id, service.service, folder, connections)
        platform = registry.adapter_of(service)(credentials.adapter_config(service, submission.secrets), host)
        return await platform.find_left(at_work, remove)

    async def one(service: PlatformSpec) -> LeftOnService:
        found, trouble = await asked("clean for good", service.service, ask(service))
        return LeftOnService(
            service=service.service,
            platform=service.name,
            objects=found or (),
            trouble=trouble,
            identity=connections.identity,
        )

    return await asyncio.gather(*map(one, able))
