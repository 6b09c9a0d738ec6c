"""The preflight of `openpai`: checks login, virtual cluster and storage, and leaves nothing on the cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from nni_manager.domain.errors import BadCredentials, PlatformUnavailable
from nni_manager.platform_kit.contract import PreflightFinding, Severity
from nni_manager.platforms.openpai.account import OpenpaiAccount, OthersToken
from nni_manager.platforms.openpai.config import OpenpaiConfig
from nni_manager.web_services.account import Refused, WebLease

Findings = list[PreflightFinding]


async def look(config: OpenpaiConfig, lease: WebLease[OpenpaiAccount]) -> Findings:
    """Findings about login, virtual cluster and storage. Raises no expected errors."""
    host, user = config.host, config.username
    try:
        async with lease.entered():
            await lease.connection.info()
            known = await lease.call(lambda account: account.user())
            found = [PreflightFinding(Severity.FINE, f"{host}: login", f"{user} is logged in")]
            found += _virtual_cluster(config, known.get("virtualCluster"))
            if config.storage_config_name:
                there = await lease.call(lambda account: account.storages())
                found += _storage(config, config.storage_config_name, there)
            return found
    except OthersToken as error:
        return [PreflightFinding(Severity.WRONG, "username", error.sentence, error.fix)]
    except BadCredentials as error:
        fix = "copy another token from the portal's profile page" if config.token else "correct the password"
        return [PreflightFinding(Severity.WRONG, "token" if config.token else "password", str(error), fix)]
    except Refused as error:
        if error.code == "NoUserError" or error.status == 404:
            return [
                PreflightFinding(
                    Severity.WRONG,
                    "username",
                    f"OpenPAI at {host} has no user {user}: {error.words}",
                    "correct username or host",
                )
            ]
        return [
            PreflightFinding(Severity.WRONG, f"{host}: login", str(error), "check that the account may use the cluster")
        ]
    except PlatformUnavailable as error:
        return [PreflightFinding(Severity.AWAY, host, str(error))]


def _virtual_cluster(config: OpenpaiConfig, allowed: object) -> Findings:
    wanted = config.virtual_cluster or "default"
    if not isinstance(allowed, list) or wanted in allowed:
        return []
    names = ", ".join(map(str, allowed)) or "none"
    sentence = f"the account may not use the virtual cluster '{wanted}'; it may use: {names}"
    return [PreflightFinding(Severity.WRONG, "virtualCluster", sentence, "set virtualCluster to one of those")]


def _storage(config: OpenpaiConfig, name: str, there: Mapping[str, bool]) -> Iterator[PreflightFinding]:
    """`there`: see `OpenpaiAccount.storages`."""
    if name not in there:
        sentence = f"the account has no storage '{name}'; it has: {', '.join(there) or 'none'}"
        yield PreflightFinding(Severity.WRONG, "storageConfigName", sentence, "set storageConfigName to one of those")
    elif not there[name] and Path(config.local_storage_mount_point).name != config.username:
        yield PreflightFinding(
            severity=Severity.WARNING,
            subject="localStorageMountPoint",
            sentence=f"the storage '{name}' is not shared: containers see only its folder {config.username}",
            fix=f"set localStorageMountPoint to the folder {config.username} of the storage, as mounted here",
        )
