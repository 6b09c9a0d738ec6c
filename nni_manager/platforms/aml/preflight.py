"""The preflight of `aml`: checks token, workspace, cluster and datastores."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from nni_manager.domain.errors import BadCredentials, PlatformUnavailable
from nni_manager.platform_kit.contract import PreflightFinding, Severity
from nni_manager.platforms.aml.config import AmlConfig
from nni_manager.web_services.account import Refused

Get = Callable[[str], Awaitable[Any | None]]


async def look(config: AmlConfig, get: Get) -> list[PreflightFinding]:
    """Findings about token, workspace, cluster and datastores. `get`: calls the workspace."""
    try:
        found = await get(f"computes/{config.compute_target}")
        workspace = await get("")
    except BadCredentials as error:
        return [PreflightFinding(Severity.WRONG, "Azure", str(error))]
    except Refused as error:
        return [PreflightFinding(Severity.WRONG, "workspaceName", f"Azure ML: {error}")]
    except PlatformUnavailable as error:
        return [PreflightFinding(Severity.AWAY, "Azure ML", str(error))]
    if found is None:
        sentence = f"workspace {config.workspace_name} has no compute target {config.compute_target}"
        return [
            PreflightFinding(Severity.WRONG, "computeTarget", sentence, "correct computeTarget, or create the cluster")
        ]
    mode = ((workspace or {}).get("properties") or {}).get("systemDatastoresAuthMode")
    if str(mode or "").lower() == "identity" and config.identity is None:
        sentence = f"datastores of workspace {config.workspace_name} only accept identities, and jobs have none"
        return [PreflightFinding(Severity.WRONG, "identity", sentence, _IDENTITIES)]
    return [PreflightFinding(Severity.FINE, "Azure ML", f"workspace and compute target {config.compute_target} exist")]


_IDENTITIES = (
    "set identity to UserIdentity, or to Managed if the cluster has an identity; assign Storage Blob Data"
    " Contributor on the workspace's storage account to it"
)
