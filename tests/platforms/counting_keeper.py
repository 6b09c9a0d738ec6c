"""The connection to a keeper, which knows how often it was used."""

from __future__ import annotations

from typing import Any

from nni_manager.platform_kit.keeper_client import Keeper


class CountingKeeper(Keeper):
    calls = 0

    async def request(self, verb: str, **arguments: Any) -> Any:
        self.calls += 1
        return await super().request(verb, **arguments)
