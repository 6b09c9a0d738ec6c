"""What experiments share: one connection per key, and everybody's own credential."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest

from nni_manager.domain.errors import BadCredentials, PlatformUnavailable
from nni_manager.platform_kit.connections import Connection, Connections, HealthState, Lease

pytestmark = [pytest.mark.unit, pytest.mark.asyncio]


class Account(Connection):
    """The far side knows some tokens."""

    def __init__(self, key: str = "https://far/x") -> None:
        super().__init__(key, clock=lambda: 7)
        self.good = {"a", "b"}
        self.calls: list[str] = []
        self.is_away = False

    async def open(self) -> None:
        self.calls.append("open")

    async def close(self) -> None:
        self.calls.append("close")

    async def check(self, credential: str) -> None:
        self.calls.append(f"check {credential}")
        if self.is_away:
            raise PlatformUnavailable("away")
        if credential not in self.good:
            raise BadCredentials("refused")

    async def use(self, credential: str) -> None:
        self.calls.append(f"use {credential}")


class Tower:
    """Connections and the accounts they made."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self.stack = stack
        self.connections = Connections()
        self.made: list[Account] = []

    async def lease(self, owner: str, credential: str, key: str = "https://far/x") -> Lease[Account]:
        return await self.stack.enter_async_context(self.connections.lease(key, owner, self._make, credential))

    def _make(self) -> Account:
        self.made.append(Account())
        return self.made[-1]


async def test_connection_is_shared_per_key_from_first_to_last_lease() -> None:
    async with AsyncExitStack() as outer:
        tower = Tower(outer)
        async with AsyncExitStack() as inner:
            tower.stack = inner
            await tower.lease("e1", "a")
            await tower.lease("e2", "b")
            assert len(tower.made) == 1
        assert [account.calls for account in tower.made] == [["open", "close"]]
        tower.stack = outer
        await tower.lease("e3", "a")
        assert len(tower.made) == 2


async def test_another_key_is_another_connection() -> None:
    async with AsyncExitStack() as stack:
        tower = Tower(stack)
        await tower.lease("e1", "a")
        await tower.lease("e2", "a", key="https://far/y")
        assert len(tower.made) == 2


async def test_every_credential_is_checked_once_before_use() -> None:
    async with AsyncExitStack() as stack:
        tower = Tower(stack)
        one, two, stranger = [await tower.lease(f"e{n}", c) for n, c in enumerate(["a", "b", "wrong"])]
        for _ in range(3):
            await one.use()
            await two.use()
        with pytest.raises(BadCredentials):
            await stranger.use()
        assert tower.made[0].calls == ["open", "check a", "use a", "check b", "check wrong"]


async def test_failed_check_is_repeated_after_an_outage() -> None:
    async with AsyncExitStack() as stack:
        tower = Tower(stack)
        one = await tower.lease("e1", "a")
        tower.made[0].is_away = True
        with pytest.raises(PlatformUnavailable):
            await one.use()
        tower.made[0].is_away = False
        await one.use()


async def test_refused_credential_is_replaced_by_another_leases() -> None:
    async with AsyncExitStack() as stack:
        tower = Tower(stack)
        one, two = await tower.lease("e1", "a"), await tower.lease("e2", "b")
        await one.use()
        tower.made[0].good = {"b"}
        await two.refused(BadCredentials("expired"))
        assert tower.made[0].calls[-1] == "use b"
        with pytest.raises(BadCredentials):
            await one.use()
        await two.use()


async def test_leases_fail_until_a_credential_is_renewed() -> None:
    async with AsyncExitStack() as stack:
        tower = Tower(stack)
        one, two = await tower.lease("e1", "a"), await tower.lease("e2", "b")
        await one.use()
        tower.made[0].good = {"c"}
        for lease in (one, two):
            with pytest.raises(BadCredentials):
                await lease.refused(BadCredentials("expired"))
        await one.renew("c")
        await one.use()
        assert tower.made[0].calls[-1] == "use c"


async def test_connection_switches_lease_when_used_one_ends() -> None:
    async with AsyncExitStack() as outer:
        tower = Tower(outer)
        two = await tower.lease("e2", "b")
        async with AsyncExitStack() as inner:
            tower.stack = inner
            one = await tower.lease("e1", "a")
            await one.use()
            await two.use()
        await two.use()
        assert tower.made[0].calls == ["open", "check a", "use a", "check b", "use b"]


async def test_lease_with_the_same_credential_needs_no_second_login() -> None:
    async with AsyncExitStack() as outer:
        tower = Tower(outer)
        async with AsyncExitStack() as inner:
            first = await inner.enter_async_context(tower.connections.lease("https://far/x", "e1", tower._make, "a"))
            second = await tower.lease("e2", "a")
            for lease in (first, second):
                await lease.use()
        await second.use()
        assert tower.made[0].calls == ["open", "check a", "use a", "check a"]


async def test_health_changes_are_reported_once() -> None:
    account, told = Account(), []
    account.on_health.append(lambda: told.append(account.health.state))
    account.note_down("timeout")
    account.note_down("timeout")
    account.note_up()
    assert told == [HealthState.DOWN, HealthState.UP]
    assert account.health.sentence == ""


async def test_credentials_appear_in_no_text() -> None:
    async with AsyncExitStack() as stack:
        tower = Tower(stack)
        assert "secret" not in repr(await tower.lease("e1", "secret"))
