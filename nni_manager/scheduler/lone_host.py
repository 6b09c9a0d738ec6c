"""What an adapter is lent that works for no loop: to look before an experiment begins, or to clean up after its end."""

from __future__ import annotations

from pathlib import Path

from nni_manager.domain.errors import InvalidInput
from nni_manager.platform_kit.connections import Connections
from nni_manager.platform_kit.contract import Delivery, Host


def lone_host(experiment_id: str, service: str, folder: Path, connections: Connections) -> Host:
    """Nothing it is told is kept. `folder`: the experiment's; it need not be there."""
    return Host(
        experiment_id=experiment_id, service=service, wake=lambda _: None, deliver=_deliver, followed=_followed,
        connections=connections, folder=folder, code=_code, greet=_nothing, exited=_nothing,
    )  # fmt: skip


async def _deliver(*_: object, **__: object) -> Delivery:
    return Delivery(resend=False)


async def _followed(_: object) -> dict[str, dict[str, int]]:
    return {}


async def _code() -> Path:
    raise InvalidInput("the experiment is not at work, and has no code to send")


async def _nothing(*_: object, **__: object) -> None:
    pass
