"""The preflight of `dlc`: checks the local NAS mount, access key, workspace and instance type."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from nni_manager.domain.errors import BadCredentials, PlatformUnavailable
from nni_manager.platform_kit.contract import PreflightFinding, Severity
from nni_manager.platforms.dlc import job
from nni_manager.platforms.dlc.account import DlcClient, DlcRefused
from nni_manager.platforms.dlc.config import DlcConfig

Read = Callable[[Callable[[DlcClient], Awaitable[Any]]], Awaitable[Any]]
_STORAGE = "localStorageMountPoint"


async def look(config: DlcConfig, mount_point: Path, read: Read) -> list[PreflightFinding]:
    """Findings about the NAS and the account. `read`: calls the account."""
    return [await asyncio.to_thread(_storage, mount_point), await _service(config, read)]


def _storage(folder: Path) -> PreflightFinding:
    fix = f"mount the NAS of nasDataSourceId there, or correct {_STORAGE}"
    if not folder.is_dir():
        return PreflightFinding(Severity.WRONG, _STORAGE, f"{folder} is not a folder on this machine", fix)
    if not os.access(folder, os.W_OK | os.X_OK):
        return PreflightFinding(Severity.WRONG, _STORAGE, f"{folder} is not writable", fix)
    if not any(os.path.ismount(one) for one in (folder.resolve(), *folder.resolve().parents[:-1])):
        sentence = f"nothing is mounted at {folder}; jobs see its files only if it is the NAS of nasDataSourceId"
        return PreflightFinding(Severity.WARNING, _STORAGE, sentence, fix)
    return PreflightFinding(Severity.FINE, _STORAGE, f"{folder} is mounted and writable")


async def _service(config: DlcConfig, read: Read) -> PreflightFinding:
    try:
        await read(lambda client: client.list_jobs(tags={}, since_ms=_ANY_TIME_MS, page=1, size=1))
        if job.resource(config) is None:
            return await _instance_type(config.ecs_spec, read)
    except BadCredentials as error:
        fix = "correct accessKeyId, accessKeySecret or workspaceId"
        return PreflightFinding(Severity.WRONG, "accessKeyId", str(error), fix)
    except PlatformUnavailable as error:
        return PreflightFinding(Severity.AWAY, "PAI-DLC", str(error))
    except DlcRefused as error:
        return PreflightFinding(Severity.WRONG, "workspaceId", str(error), "correct workspaceId or region")
    return PreflightFinding(Severity.FINE, "PAI-DLC", "the access key and the workspace are valid")


async def _instance_type(name: str, read: Read) -> PreflightFinding:
    found = await read(lambda client: client.find_instance_type(name))
    if found is None:
        fix = "use an instance type that PAI-DLC offers in this region"
        return PreflightFinding(Severity.WRONG, "ecsSpec", f"the region has no instance type {name}", fix)
    if found.get("IsAvailable") is False:
        return PreflightFinding(Severity.WARNING, "ecsSpec", f"{name} is out of stock now; jobs wait for it")
    return PreflightFinding(Severity.FINE, "PAI-DLC", f"the access key, the workspace and {name} are valid")


#: Before the service existed.
_ANY_TIME_MS = 1_600_000_000_000
