"""The connection to a keeper, which knows how often it was used, and loses an answer on demand."""

from __future__ import annotations

from typing import Any

from nni_manager.domain.errors import PlatformUnavailable
from nni_manager.machines.keeper.client import Keeper


class CountingKeeper(Keeper):
    calls = 0
    #: The next job is started, and the answer is lost.
    loses_answer = False

    async def request(self, verb: str, **arguments: Any) -> Any:
        self.calls += 1
        answer = await super().request(verb, **arguments)
        if verb == "spawn" and self.loses_answer:
            self.loses_answer = False
            raise PlatformUnavailable("the answer was lost on its way")
        return answer
