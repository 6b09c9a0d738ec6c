"""Checks before the first job: the cluster answers, and would take a job with the section's options."""

from __future__ import annotations

from collections.abc import Sequence

from nni_manager.domain.errors import BadCredentials, PlatformUnavailable
from nni_manager.platform_kit.contract import PreflightFinding, Severity
from nni_manager.platforms.slurm.cluster import Cluster
from nni_manager.platforms.slurm.config import SlurmConfig
from nni_manager.web_services.account import WebLease


async def look(config: SlurmConfig, lease: WebLease[Cluster]) -> Sequence[PreflightFinding]:
    """The findings on a cluster."""
    try:
        facts = await lease.call(lambda cluster: cluster.facts())
    except BadCredentials as error:
        return [PreflightFinding(Severity.WRONG, "login", str(error), "correct login")]
    except PlatformUnavailable as error:
        return [PreflightFinding(Severity.AWAY, "cluster", str(error))]
    version = "unknown" if facts.version is None else f"{facts.version[0]}.{facts.version[1]:02}"
    return [PreflightFinding(Severity.FINE, "cluster", f"Slurm {version} answers")]
