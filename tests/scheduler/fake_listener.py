"""A trial listener that opens no socket, and records the experiments that opened it."""

from __future__ import annotations

from nni_manager.scheduler.turns.trial_listener import RunnerTokens


class FakeListener:
    def __init__(self) -> None:
        self.tokens = RunnerTokens(b"secret")
        self.authority = ""
        self.users: set[str] = set()
        #: Every opening, in order.
        self.opened: list[str] = []
        #: What the next openings raise.
        self.raises: list[Exception] = []

    async def open(self, experiment_id: str) -> None:
        if self.raises:
            raise self.raises.pop(0)
        self.opened.append(experiment_id)
        self.users.add(experiment_id)

    async def close(self, experiment_id: str) -> None:
        self.users.discard(experiment_id)

    def url(self, manager_ip: str) -> str:
        return f"http://{manager_ip or '127.0.0.1'}:9999"
