"""The trial listener over TLS: runners trust the given authority, and an unusable certificate is reported."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from nni_manager.app.doctor import ports
from nni_manager.app.doctor.finding import CheckFinding, CheckOutcome
from nni_manager.app.listening import trial_tls
from nni_manager.app.listening.trial_listener import TrialListenerSocket
from nni_manager.app.listening.trial_tls import TrialTls
from nni_manager.config.settings import Settings
from nni_manager.domain.attempt import Attempt
from nni_manager.domain.errors import InvalidInput
from nni_manager.scheduler.changes import DaemonWarnings
from nni_manager.scheduler.turns.trial_listener import runner_environment
from tests.app.test_trial_listener_socket import opened
from tests.certificates import Authority
from trial_runner import protocol
from trial_runner.runner.client import Client, Unavailable
from trial_runner.runner.settings import Credential

pytestmark = pytest.mark.unit


def tls(certificate: Path, key: Path, authority: Path | None = None) -> dict[str, str]:
    given = {"trial_tls_certificate": str(certificate), "trial_tls_key": str(key)}
    return given | ({"trial_tls_authority": str(authority)} if authority else {})


def heard(environment: dict[str, str], *, trusts: bool = True) -> str:
    """A runner's error in connecting with this environment; empty: none."""
    pem = protocol.on_lines(environment.get(protocol.ENV_MANAGER_CA, "")) if trusts else ""
    client = Client(environment[protocol.ENV_MANAGER_URL], Credential(environment[protocol.ENV_TOKEN]), "", pem)
    try:
        client.get("parameters")
    except Unavailable as error:
        return str(error)
    finally:
        client.close()
    return ""


def told(listener: TrialListenerSocket) -> dict[str, str]:
    return runner_environment(listener, Attempt("abcde", 1, "job"), manager_ip="", experiment_id="exp1")


@pytest.mark.parametrize("is_named", [True, False], ids=["authority", "the certificate itself"])
async def test_runners_trust_the_given_authority(tmp_path: Path, is_named: bool) -> None:
    authority = Authority(tmp_path)
    files = authority.issue("127.0.0.1")
    settings = tls(*files, authority.file if is_named else None)
    async with opened(tmp_path, **settings) as (listener, listeners):
        await listener.open("exp1")
        environment = told(listener)
        assert environment[protocol.ENV_MANAGER_URL].startswith("https://127.0.0.1:")
        assert listeners.open[0].address.startswith("https://")
        assert "\n" not in environment[protocol.ENV_MANAGER_CA]
        sentence = await asyncio.to_thread(heard, environment)
        assert "is not the manager of this attempt (it answered 200" in sentence, (
            "it was asked, and has no runner's desk"
        )
        assert "CERTIFICATE_VERIFY_FAILED" in await asyncio.to_thread(heard, environment, trusts=False)
        await listener.close("exp1")


async def test_a_renewed_certificate_is_used_without_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_tls, "LOOKED_S", 0.0)
    authority, warnings = Authority(tmp_path), DaemonWarnings()
    files = authority.issue("127.0.0.1", timedelta(minutes=-1))
    async with opened(tmp_path, warnings=warnings, **tls(*files, authority.file)) as (listener, _):
        await listener.open("exp1")
        (warned,) = warnings.of("exp1")
        assert (warned.code, "certificate has expired" in warned.message) == ("TRIAL_CERTIFICATE", True)
        assert "certificate has expired" in await asyncio.to_thread(heard, told(listener))
        authority.issue("127.0.0.1")
        await listener.open("exp1")
        assert "it answered 200" in await asyncio.to_thread(heard, told(listener))
        assert warnings.of("exp1") == ()
        await listener.close("exp1")


async def test_a_certificate_is_judged_once_for_many_submissions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged: list[str] = []
    days_left = TrialTls.days_left
    monkeypatch.setattr(TrialTls, "days_left", lambda tls, host: judged.append(host) or days_left(tls, host))
    authority = Authority(tmp_path)
    async with opened(tmp_path, **tls(*authority.issue("127.0.0.1"), authority.file)) as (listener, _):
        for _ in range(3):
            await listener.open("exp1")
        assert judged == ["127.0.0.1"]
        monkeypatch.setattr(trial_tls, "JUDGED_S", 0.0)
        monkeypatch.setattr(trial_tls, "LOOKED_S", 0.0)
        authority.issue("127.0.0.1")
        for _ in range(3):
            await listener.open("exp1")
        assert len(judged) == 4, "another file, and then no judgement holds"
        await listener.close("exp1")


async def test_a_proxy_in_front(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    settings = {"trial_url": "https://proxy.example.org:8443/nni/", "trial_tls_authority": str(authority.file)}
    async with opened(tmp_path, **settings) as (listener, _):
        await listener.open("exp1")
        environment = told(listener)
        assert environment[protocol.ENV_MANAGER_URL] == "https://proxy.example.org:8443/nni/trial/v1/exp1/abcde/1"
        assert protocol.on_lines(environment[protocol.ENV_MANAGER_CA]) == authority.file.read_text().strip()
        await listener.close("exp1")


def look(tmp_path: Path, **settings: str) -> CheckFinding:
    made = Settings(data_dir=tmp_path, trial_host="127.0.0.1", port=0, **settings)  # type: ignore[arg-type]
    (found,) = (one for one in ports.look(made) if one.check == "trial certificate")
    return found


def test_doctor_names_certificate_problem(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    fresh = authority.issue("127.0.0.1", timedelta(days=99))
    assert look(tmp_path, **tls(*fresh, authority.file)).verdict is CheckOutcome.OK
    soon = look(tmp_path, **tls(*authority.issue("127.0.0.1"), authority.file))
    assert (soon.verdict, "expires in 0 days" in soon.sentence) == (CheckOutcome.WARN, True)
    expired = look(tmp_path, **tls(*authority.issue("127.0.0.1", timedelta(minutes=-1)), authority.file))
    assert (expired.verdict, "has expired" in expired.sentence) == (CheckOutcome.FAIL, True)
    elsewhere = look(tmp_path, **tls(*authority.issue("192.0.2.9"), authority.file))
    assert (elsewhere.verdict, "IP address mismatch" in elsewhere.sentence) == (CheckOutcome.FAIL, True)
    assert "valid for 127.0.0.1 and today" in elsewhere.advice
    certificate, _ = authority.issue("127.0.0.1", name="one")
    _, key = authority.issue("127.0.0.1", name="other")
    assert "KEY_VALUES_MISMATCH" in look(tmp_path, **tls(certificate, key)).sentence.upper().replace(" ", "_")
    missing = look(tmp_path, **tls(tmp_path / "nowhere", key))
    assert "No such file" in missing.sentence


async def test_half_a_setting_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="only one of trialTlsCertificate and trialTlsKey is set"):
        TrialListenerSocket(Settings(data_dir=tmp_path, trial_tls_key="key.pem"), DaemonWarnings(), allowed=True)
