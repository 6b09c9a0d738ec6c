"""The preflight of `openpai`: whether jobs could run on a cluster, without leaving anything there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from nni_manager.domain.errors import BadCredentials, PlatformUnavailable
from nni_manager.domain.experiment import Json
from nni_manager.platform_kit.contract import PreflightFinding, Severity
from nni_manager.platform_kit.web_account import Refused, WebLease
from nni_manager.platforms.openpai.account import OpenpaiAccount

Findings = list[PreflightFinding]


async def look(settings: Json, lease: WebLease[OpenpaiAccount], storages: Sequence[str]) -> Findings:
    """Findings about login, virtual cluster and storages. `storages`: names of those that jobs mount.

    Raises nothing on purpose.
    """
    host, user = str(settings["host"]), str(settings["username"])
    try:
        async with lease.entered():
            await lease.connection.info()
            known = await lease.call(lambda account: account.user())
            found = [_fine(f"{host}: login", f"{user} is logged in")]
            found += _virtual_cluster(settings, known.get("virtualCluster"))
            found += await _storages(storages, lambda: lease.call(lambda account: account.storages()))
            return found
    except BadCredentials as error:
        fix = "give another token, from the portal's profile page" if settings.get("token") else "correct the password"
        return [_wrong("token" if settings.get("token") else "password", str(error), fix)]
    except Refused as error:
        if error.status == 404:
            return [_wrong("username", f"OpenPAI at {host} knows no {user}: {error.words}", "correct username or host")]
        return [_wrong(f"{host}: login", str(error), "see that the account may use the cluster")]
    except PlatformUnavailable as error:
        return [PreflightFinding(severity=Severity.AWAY, subject=host, sentence=str(error))]


def _virtual_cluster(settings: Json, allowed: object) -> Findings:
    wanted = str(settings.get("virtualCluster") or "default")
    if not isinstance(allowed, list) or wanted in allowed:
        return []
    names = ", ".join(map(str, allowed)) or "none"
    sentence = f"the account may not use the virtual cluster '{wanted}'; it may use: {names}"
    return [_wrong("virtualCluster", sentence, "set virtualCluster to one of those")]


async def _storages(wanted: Sequence[str], ask: Callable[[], Awaitable[list[str]]]) -> Findings:
    if not wanted:
        return []
    known = await ask()
    return [
        _wrong(
            "storageConfigName", f"the account has no storage '{name}'; it has: {', '.join(known) or 'none'}",
            "set storageConfigName to one of those",
        )
        for name in wanted if name not in known
    ]  # fmt: skip


def _fine(subject: str, sentence: str) -> PreflightFinding:
    return PreflightFinding(severity=Severity.FINE, subject=subject, sentence=sentence)


def _wrong(subject: str, sentence: str, fix: str) -> PreflightFinding:
    return PreflightFinding(severity=Severity.WRONG, subject=subject, sentence=sentence, fix=fix)
