"""GPUs of several hosts, each with a real keeper: two experiments fill them while the daemon is killed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from nni_manager.machines.ledger import Demand
from tests.fake_driver import OnCard
from tests.machines.gpu_hosts import HOST, Daemon, GpuHost, Stored, kill_now_and_then
from trial_runner import protocol

pytestmark = pytest.mark.contract

KILLS = int(os.environ.get("NNI_KILLS", "6"))
_LOOK_S = 0.05

ALL = {("two", "0"), ("two", "1"), *(("four", str(n)) for n in range(4))}

Hosts = dict[str, GpuHost]


@pytest_asyncio.fixture
async def hosts(tmp_path: Path) -> AsyncIterator[Hosts]:
    found = {name: GpuHost(name, tmp_path, cards) for name, cards in (("two", 2), ("four", 4))}
    yield found
    for host in found.values():
        await host.end()


class Oracle:
    """Looks at processes alone. `limits`: experiment → how many trials may have a card of its trials."""

    def __init__(self, hosts: Hosts, limits: dict[str, int]) -> None:
        self._hosts = hosts
        self._limits = limits
        self.findings: list[str] = []
        self.trials: set[str] = set()
        self.cards: set[tuple[str, str]] = set()

    async def run(self) -> None:
        while True:
            for name, host in self._hosts.items():
                self._judge(name, host.trials())
            await asyncio.sleep(_LOOK_S)

    def _judge(self, host: str, environments: list[dict[str, str]]) -> None:
        users: dict[str, set[tuple[str, str]]] = {}
        for environment in environments:
            assert environment[HOST] == host
            self.trials.add(environment["TRIAL"])
            for card in environment[protocol.ENV_GPUS].split(","):
                users.setdefault(card, set()).add((environment["EXPERIMENT"], environment["TRIAL"]))
        for card, who in users.items():
            self.cards.add((host, card))
            if len(who) > min(self._limits[experiment] for experiment, _ in who):
                self.findings.append(f"card {card} of {host}: {sorted(who)}")


async def test_no_card_is_over_its_limit_while_daemons_are_killed(hosts: Hosts) -> None:
    one = Stored("one", Demand(count=1), trials=16, concurrency=8, seconds="0.4")
    pair = Stored("pair", Demand(count=2, share=2), trials=8, concurrency=4, seconds="0.7")
    oracle = Oracle(hosts, {"one": 1, "pair": 2})
    looking = asyncio.create_task(oracle.run())
    async with asyncio.timeout(50):
        await kill_now_and_then(hosts, [one, pair], KILLS)
    looking.cancel()
    assert oracle.findings == []
    assert (len(one.done), len(pair.done)) == (16, 8)
    # a busy machine hides a short trial, and ends it before the next one needs another card
    assert {trial.partition("-")[0] for trial in oracle.trials} == {"one", "pair"}
    assert {host for host, _ in oracle.cards} == {"two", "four"} and oracle.cards <= ALL


async def test_cards_of_others_are_left_alone_on_every_host(hosts: Hosts) -> None:
    mine = os.getpid()
    hosts["two"].driver.show({0: [OnCard(mine)], 1: [OnCard(mine, kind="G")]})
    hosts["four"].driver.show({n: [OnCard(mine, 11264)] for n in range(4)})
    stored = Stored("one", Demand(count=1), trials=3, concurrency=3, seconds="0.5")
    oracle = Oracle(hosts, {"one": 1})
    looking = asyncio.create_task(oracle.run())
    async with asyncio.timeout(30):
        await Daemon(hosts).run([stored])
    looking.cancel()
    assert oracle.cards == {("two", "1")}
    assert f"gpu 0 on two busy: pid {mine} of user" in stored.why and "gpu 1 on two has one-" in stored.why
    assert f"gpu 3 on four busy: pid {mine}" in stored.why
