"""The base of all models, refusals, the daemon and its disk, and code that was sent.

camelCase outside, snake_case inside.
"""

from __future__ import annotations

import json
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticSerializationError

from nni_manager import __version__


class Wire(BaseModel):
    """Unknown fields are refused, so that a misspelt one is noticed.

    A model's checks are compiled when they are used first: those of all models took 5 % of the daemon's start.
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
        extra="forbid",
        from_attributes=True,  # so records of the daemon become models
        frozen=True,
        defer_build=True,
    )

    def json_text(self) -> str:
        """All of it. What pydantic cannot spell, halves of characters, becomes escapes; what is no number is null."""
        try:
            return self.model_dump_json(by_alias=True)
        except PydanticSerializationError:
            plain = json.dumps(self.model_dump(by_alias=True))
            return json.dumps(json.loads(plain, parse_constant=lambda _: None))


class Sent(Wire):
    """A request's body. Its checks are compiled at the start: later, pydantic warns of what FastAPI adds to them."""

    model_config = ConfigDict(defer_build=False)


class Problem(Wire):
    """One thing wrong with an experiment file."""

    message: str = Field(description="What is wrong and what to do, one sentence.")
    field: str = Field(description="Dotted path of the field as the user wrote it; empty for the whole file.")
    file: str = Field(description="File the problem is in; empty when the text came without one.")
    line: int = Field(description="1-based line in that file; 0 when unknown.")


class FileWarning(Problem):
    """Something about an experiment file that refuses nothing."""

    code: str = Field(description="The kind, for programs.")


class Error(Wire):
    """Every answer that is not of the 2xx kind."""

    error: str = Field(description="For the user: what happened, which field or thing, what to do next.")
    problems: list[Problem] | None = Field(
        default=None, description="Only when an experiment file or a changed value cannot be used: every reason found."
    )
    warnings: list[FileWarning] | None = Field(
        default=None, description="Only with `problems`: what was found besides and would have refused nothing."
    )


class Health(Wire):
    status: Literal["ok"] = Field(description="Always `ok`; a daemon that cannot serve does not answer.")


class Listener(Wire):
    """A listener: where clients may come in."""

    kind: str = Field(description="`control` (Unix socket), `service`, `endpoint` or `trials`.")
    address: str = Field(description="Path of the socket, or `http://host:port`.")


class Daemon(Wire):
    version: str = Field(description="Version of the manager.", examples=[__version__])
    pid: int = Field(description="Its process id.")
    data_directory: str = Field(description="Absolute path of its data directory.")
    started_ms: int = Field(description="When it was started, milliseconds since the epoch.")
    listeners: list[Listener] = Field(description="All open listeners.")
    experiments: int = Field(description="How many experiments it knows, stopped ones included.")
    ends_by_itself: bool = Field(
        description="True: a command started it, and it ends with its last open experiment. False: it goes on without."
    )


class StopDaemon(Sent):
    experiments: bool = Field(
        default=False, description="True: all experiments are stopped first. False: jobs go on without the daemon."
    )


class Stopping(Wire):
    status: Literal["stopping"] = Field(description="Always `stopping`; the daemon is gone a moment later.")


class Code(Wire):
    """A code directory that experiments can be made of."""

    sha256: str = Field(description="SHA-256 of the packed code, in hex; `code` of a new experiment.")
    directory: str = Field(description="Where it lies as it was sent, unpacked, on the daemon's machine.")


class DiskUse(Wire):
    """The room that an experiment takes on the manager's machine, in bytes as `du` counts them."""

    total: int = Field(description="All of it.")
    database: int = Field(description="Its database, with what belongs to that.")
    trials: int = Field(description="What trials wrote, outboxes and logs among it.")
    checkpoints: int = Field(description="Checkpoints of its tuner.")
    code: int = Field(description="Copies and archives of its code.")
    logs: int = Field(description="Its own logs.")
    other: int = Field(description="What else is in its folder.")
    files: int = Field(description="How many files there are.")


class Disk(Wire):
    """The disk of the data directory."""

    folder: str = Field(description="The data directory.")
    free: int = Field(description="Bytes that are free for the manager's user.")
    total: int = Field(description="Bytes that the disk has.")
    least: int = Field(description="Free bytes below which the manager warns; 0: it does not.")
    warning: str = Field(description="What is wrong and what to do; empty: there is room.")
