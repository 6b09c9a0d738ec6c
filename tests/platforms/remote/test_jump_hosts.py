"""`proxyJump` accepts what `ssh -J` accepts; an invalid host is refused at the field."""

from __future__ import annotations

import pytest

from nni_manager.machines.ssh.address import Address, Credential, JumpHost
from nni_manager.machines.ssh.faults import MachineFault
from nni_manager.machines.ssh.login import log_in
from nni_manager.platforms.remote.config import RemoteConfig

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("hop", "user", "host", "port"),
    [
        ("gate", "", "gate", 22),
        ("alice@gate:2222", "alice", "gate", 2222),
        ("alice@example.org@gate", "alice@example.org", "gate", 22),
        ("alice@[::1]:25023", "alice", "::1", 25023),
        ("[fe80::1%eth0]", "", "fe80::1%eth0", 22),
        ("fe80::1", "", "fe80::1", 22),
        ("ssh://alice@gate:22", "alice", "gate", 22),
        ("ssh://[::1]:2222/", "", "::1", 2222),
    ],
)
def test_jump_host_as_ssh_takes_it(hop: str, user: str, host: str, port: int) -> None:
    assert JumpHost.parse(hop) == JumpHost(host=host, port=port, user=user)
    assert _remarks(hop) == []


@pytest.mark.parametrize("hop", ["gate:ssh", "gate:", "gate:0", "gate:65536", "gate:-1", "gate:99999999999999999999"])
def test_wrong_port_of_a_jump_host_is_refused_at_the_field(hop: str) -> None:
    words = f"the port of {hop} is not a number from 1 to 65535"
    assert _remarks(f"alice@first,{hop}") == [("machineList[0].proxyJump", words)]


@pytest.mark.parametrize("hop", ["alice@", ":22", "[::1", "[]:22", "ssh://"])
def test_jump_without_a_host_is_refused_at_the_field(hop: str) -> None:
    [(field, words)] = _remarks(hop)
    assert field == "machineList[0].proxyJump" and words.startswith(f"{hop} is not `user@host:port`")


def test_no_jump_host() -> None:
    assert _remarks("none") == []


async def test_invalid_stored_jump_host_is_machine_fault() -> None:
    """Experiments have entries that were accepted then."""
    with pytest.raises(MachineFault) as caught:
        await log_in(Address(host="there", port=22, user="alice", jumps=("gate:ssh",)), Credential())
    assert caught.value.fault.subject == "jump host gate:ssh" and "correct `proxyJump`" in str(caught.value)


def _remarks(proxy_jump: str) -> list[tuple[str, str]]:
    machine = {"host": "there", "user": "alice", "proxyJump": proxy_jump}
    section = {"platform": "remote", "trialCommand": "true", "machineList": [machine]}
    return list(RemoteConfig.model_validate(section).faults({}))
