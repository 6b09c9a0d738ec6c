"""Asks training services whether jobs could run there, before an experiment is made."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from nni_manager.config import credentials
from nni_manager.domain.errors import BadCredentials, InvalidInput, PlatformUnavailable
from nni_manager.domain.experiment import ExperimentSpec, PlatformSpec
from nni_manager.domain.warning import ExperimentWarning
from nni_manager.platform_kit import registry
from nni_manager.platform_kit.contract import TIME_LIMITS_S, Host, PreflightFinding, Severity
from nni_manager.scheduler.lone_host import lone_host
from nni_manager.scheduler.warnings import DaemonWarnings
from nni_manager.store.folder import Folder

if TYPE_CHECKING:
    from nni_manager.scheduler.build import Means

log = logging.getLogger(__name__)

#: Codes of warnings.
SERVICE_AWAY = "SERVICE_AWAY"
PREFLIGHT = "PREFLIGHT"

Findings = Mapping[str, Sequence[PreflightFinding]]


async def look(spec: ExperimentSpec, secrets: Mapping[str, str], means: Means, folder: Folder) -> Findings:
    """Service → what was found, all asked at the same time. Raises InvalidInput when it cannot work."""

    def host(service: PlatformSpec) -> Host:
        return lone_host(folder.path.name, service.service, folder.path, means.connections)

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
    """`secrets`: reference → value. Never raises: what a service cannot say is a finding."""
    limit_s = TIME_LIMITS_S["preflight"]
    try:
        async with asyncio.timeout(limit_s):
            return await registry.adapter_of(service)(credentials.filled(service, secrets), host).preflight()
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
    """Says what refuses nothing, each with its service as the subject."""
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
    """The service was reached."""
    warnings.clear(experiment_id, SERVICE_AWAY, service)


def _finding(severity: Severity, sentence: str) -> PreflightFinding:
    return PreflightFinding(severity=severity, subject="preflight", sentence=sentence)


def _sentence(finding: PreflightFinding) -> str:
    return f"{finding.subject}: {finding.sentence}" + (f"; {finding.fix}" if finding.fix else "")
