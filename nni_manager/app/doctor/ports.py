"""Checks the TCP ports of a daemon: whether they are free and may be opened."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from nni_manager.app.doctor import daemon_and_keeper
from nni_manager.app.doctor.finding import CheckFinding, failure, ok, told, warning
from nni_manager.app.listening import ports, trial_listener, trial_tls
from nni_manager.app.listening.ports import SHORTEST_TOKEN, is_loopback
from nni_manager.config.settings import Settings
from nni_manager.domain.errors import AlreadyOwned, InvalidInput


def look(settings: Settings) -> Iterator[CheckFinding]:
    ours = daemon_and_keeper.open_ports(settings.data_dir)
    yield _address(settings)
    yield _port("service port", settings.host, settings.port, "", ours)
    trial_port = settings.trial_port or (settings.port + 1 if settings.port else 0)
    if trial_port < 65536:
        yield _trial_port(settings, trial_port, ours)
    if settings.trial_tls_certificate or settings.trial_tls_key:
        yield _certificate(settings)


def _trial_port(settings: Settings, port: int, ours: dict[int, str]) -> CheckFinding:
    try:
        trial_listener.check(settings)
    except InvalidInput as error:
        return failure("trial port", *told(error))
    return _port("trial port", settings.trial_host, port, "trial-", ours)


def _certificate(settings: Settings) -> CheckFinding:
    check = "trial certificate"
    host = (
        trial_listener.host_of(settings, "") if not settings.trial_url else urlsplit(settings.trial_url).hostname or ""
    )
    try:
        tls = trial_tls.of(settings)
        assert tls is not None, "one is set"
        days = tls.days_left(host)
    except InvalidInput as error:
        return failure(check, *told(error))
    if days < trial_tls.SOON_DAYS:
        return warning(
            check, f"the certificate of the trial listener expires in {days:.0f} days", "renew it in the same file"
        )
    return ok(check, f"trial runners that reach this machine as {host} accept it for {days:.0f} days")


def _address(settings: Settings) -> CheckFinding:
    is_own = is_loopback(settings.host)
    shortest = min(len(token) for token in (settings.token, settings.read_token or settings.token))
    if settings.token and shortest < SHORTEST_TOKEN:
        sentence = f"the token of the service on {settings.host} is too short; `serve` refuses it"
        return failure(
            "access", sentence, f"use at least {SHORTEST_TOKEN} characters, such as from `openssl rand -hex 16`"
        )
    if settings.token:
        return ok("access", f"the service on {settings.host} requires its token")
    if is_own:
        return ok("access", f"the service on {settings.host} is reachable only from this machine")
    sentence = f"the service would be open to others on {settings.host}, without a token; `serve` refuses that"
    return failure("access", sentence, "set NNI_MANAGER_TOKEN, or host: 127.0.0.1")


def _port(check: str, host: str, port: int, options: str, ours: dict[int, str]) -> CheckFinding:
    if port == 0:
        return ok(check, f"any free port on {host}")
    if port in ours:
        return ok(check, f"{port} is open: the {ours[port]} listener of the running daemon")
    try:
        taken = ports.reserve(host, port, options=options)
    except AlreadyOwned as error:
        return warning(check, *told(error))
    except InvalidInput as error:
        return failure(check, *told(error))
    taken.give_back()
    return ok(check, f"{port} on {host} is free")
