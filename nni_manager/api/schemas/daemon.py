"""The base of all models; errors, the daemon and its disk, and uploaded code.

Names are camelCase in JSON, snake_case in Python.
"""

from __future__ import annotations

import json
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticSerializationError

from nni_manager import __version__


class Wire(BaseModel):
    """The base of all models. Unknown fields are refused, so that misspelled ones are noticed.

    A model's checks are compiled on first use, because compiling all takes 5 % of the daemon's start.
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
        extra="forbid",
        from_attributes=True,  # converts records of the daemon to models
        frozen=True,
        defer_build=True,
    )

    def json_text(self) -> str:
        """The JSON text. Lone surrogates, which pydantic cannot write, become escapes; NaN becomes null."""
        try:
            return self.model_dump_json(by_alias=True)
        except PydanticSerializationError:
            plain = json.dumps(self.model_dump(by_alias=True))
            return json.dumps(json.loads(plain, parse_constant=lambda _: None))


class Sent(Wire):
    """A request's body. Its checks are compiled at the start, because pydantic later warns of FastAPI's additions."""

    model_config = ConfigDict(defer_build=False)


class Problem(Wire):
    """A problem in an experiment file."""

    message: str = Field(description="The problem and what to do, one sentence.")
    field: str = Field(description="Dotted path of the field as the user wrote it; empty: the whole file.")
    file: str = Field(description="File with the problem; empty: the text came without a file.")
    line: int = Field(description="1-based line in that file; 0: unknown.")


class FileWarning(Problem):
    """A warning about an experiment file."""

    code: str = Field(description="The kind, for programs.")


class Error(Wire):
    """The body of every answer with a status other than 2xx."""

    error: str = Field(description="Message for the user: what happened, to which object, and what to do next.")
    problems: list[Problem] | None = Field(
        default=None, description="Only for an invalid experiment file or changed value: all problems."
    )
    warnings: list[FileWarning] | None = Field(
        default=None, description="Only with `problems`: warnings about the same file."
    )


class Health(Wire):
    status: Literal["ok"] = Field(description="Always `ok`; a daemon that cannot serve does not answer.")


class Listener(Wire):
    """A listener: an address for clients."""

    kind: str = Field(description="`control` (Unix socket), `service`, `endpoint` or `trials`.")
    address: str = Field(description="Path of the socket, or `http://host:port`.")


class Daemon(Wire):
    version: str = Field(description="Version of the manager.", examples=[__version__])
    pid: int = Field(description="Its process id.")
    data_directory: str = Field(description="Absolute path of its data directory.")
    started_ms: int = Field(description="When it was started, milliseconds since the epoch.")
    listeners: list[Listener] = Field(description="All open listeners.")
    experiments: int = Field(description="Number of its experiments, including stopped ones.")
    ends_by_itself: bool = Field(
        description="True: a command started it, and it ends with its last open experiment. False: it keeps running."
    )


class StopDaemon(Sent):
    experiments: bool = Field(
        default=False, description="True: stops all experiments first. False: jobs keep running without the daemon."
    )


class Stopping(Wire):
    status: Literal["stopping"] = Field(description="Always `stopping`; the daemon ends a moment later.")


class Code(Wire):
    """An uploaded code directory for experiments."""

    sha256: str = Field(description="SHA-256 of the packed code, in hex; `code` of a new experiment.")
    directory: str = Field(description="Folder of the unpacked code on the daemon's machine.")


class DiskUse(Wire):
    """The disk use of an experiment on the manager's machine, in bytes as counted by `du`."""

    total: int = Field(description="Total size.")
    database: int = Field(description="Its database, including auxiliary files.")
    trials: int = Field(description="Files of trials, including outboxes and logs.")
    checkpoints: int = Field(description="Checkpoints of its tuner.")
    code: int = Field(description="Copies and archives of its code.")
    logs: int = Field(description="Its own logs.")
    other: int = Field(description="Other files in its folder.")
    files: int = Field(description="Number of files.")


class Disk(Wire):
    """The disk of the data directory."""

    folder: str = Field(description="The data directory.")
    free: int = Field(description="Free bytes for the manager's user.")
    total: int = Field(description="Size of the disk in bytes.")
    least: int = Field(description="Free bytes below which the manager warns; 0: no warning.")
    warning: str = Field(description="The problem and what to do; empty: enough space.")
