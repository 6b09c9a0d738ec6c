"""The daemon itself."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from nni_manager.api.schemas.wire import Wire


class Health(Wire):
    status: Literal["ok"] = Field(description="Always `ok`; who is not well does not answer.")


class Door(Wire):
    """Where clients may come in."""

    kind: str = Field(description="`control` (Unix socket), `service`, `view` or `trials`.")
    address: str = Field(description="Path of the socket, or `http://host:port`.")


class Daemon(Wire):
    version: str = Field(description="Version of the manager.", examples=["0.6.0"])
    pid: int = Field(description="Its process id.")
    data_directory: str = Field(description="Absolute path of its data directory.")
    started_ms: int = Field(description="When it was started, milliseconds since the epoch.")
    doors: list[Door] = Field(description="All open doors.")
    experiments: int = Field(description="How many experiments it knows, stopped ones included.")
    ends_by_itself: bool = Field(
        description="True: a command started it, and it ends with its last open experiment. False: it goes on without."
    )


class StopDaemon(Wire):
    experiments: bool = Field(
        default=False, description="True: all experiments are stopped first. False: jobs go on without the daemon."
    )


class Stopping(Wire):
    status: Literal["stopping"] = Field(description="Always `stopping`; the daemon is gone a moment later.")
