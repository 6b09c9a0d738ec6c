"""Names of hosts and users in `machineList`: what `ssh` takes is taken, and what could be an option or a command is
refused at the field."""

from __future__ import annotations

import pytest

from nni_manager.platforms.remote.config import RemoteConfig

pytestmark = pytest.mark.unit

_HOSTS = (
    "gpu-1.example.org",
    "gpu_1",
    "10.0.0.1",
    "::1",
    "fe80::1%eth0",
    "[fe80::1%25eth0]",
    "bücher.example",
    "a",
    "x--y",
)
_USERS = (
    *(
        "alice",
        "alice.b-c_d",
        "alice@example.org",
        r"CORP\alice",
        r"CORP\Domain Users",
        "host$",
        "_svc",
        "jürgen",
        "a-",
    ),
    *("alice+ci", "1000", "alice%x", "o=corp/ou=x", "me,you"),
)
_WRONG_HOSTS = (
    *(
        "-oProxyCommand=touch x",
        "-box",
        "a;touch x",
        "a\nb",
        "a b",
        "a\tb",
        "a\0",
        "a\x1b[2J",
        "a\u2028b",
        "$(id)",
        "`id`",
    ),
    *("a|b", "a&b", "a>b", "a<b", "'a'", '"a"', "a\\b", "a,b", "{a}", "a\x7f"),
)
_WRONG_USERS = (
    *("-l root", "-oProxyCommand=x", "a;b", "a\nb", "a\0", "`id`", "$(id)", "a|b", "a&b", "a>b", "'a'", '"a"', "{a}"),
    *("a -oProxyCommand=x", "corp\\", "a\x1b", "a\u2028b"),
)


@pytest.mark.parametrize("host", _HOSTS)
def test_host_as_ssh_takes_it(host: str) -> None:
    assert _remarks(host=host) == []


@pytest.mark.parametrize("user", _USERS)
def test_user_as_ssh_takes_it(user: str) -> None:
    assert _remarks(user=user) == []


@pytest.mark.parametrize("host", _WRONG_HOSTS)
def test_invalid_host_is_refused_at_field(host: str) -> None:
    [(field, words)] = _remarks(host=host)
    assert field == "machineList[0].host" and words.startswith(f"{host!r} is not a valid host name: ")
    assert words.isprintable()


@pytest.mark.parametrize("user", _WRONG_USERS)
def test_invalid_user_is_refused_at_field(user: str) -> None:
    [(field, words)] = _remarks(user=user)
    assert field == "machineList[0].user" and words.startswith(f"{user!r} is not a valid user name: ")


@pytest.mark.parametrize(
    ("hop", "what"),
    [
        ("-oProxyCommand=x", "host"),
        ("-l@gate", "user"),
        ("a;b@gate", "user"),
        ("gate;touch", "host"),
        ("g\x1b", "host"),
    ],
)
def test_invalid_jump_host_is_refused_at_field(hop: str, what: str) -> None:
    [(field, words)] = _remarks(proxyJump=f"alice@first,{hop}")
    assert field == "machineList[0].proxyJump" and f"is not a valid {what} name" in words


def _remarks(**fields: str) -> list[tuple[str, str]]:
    machine = {"host": "there", "user": "alice", **fields}
    section = {"platform": "remote", "trialCommand": "true", "machineList": [machine]}
    return list(RemoteConfig.model_validate(section).faults({}))
