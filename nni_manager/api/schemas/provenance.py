"""The provenance record of an experiment, for its repetition."""

from __future__ import annotations

from pydantic import Field

from nni_manager.api.schemas.daemon import Sent

#: Maximum length of a text, and of the diff: a megabyte, part of it as replaced bytes.
_TEXT, _DIFF = 4096, 2**20
_PACKAGES, _UNTRACKED = 2000, 200


class Package(Sent):
    """An installed package."""

    name: str = Field(max_length=_TEXT, description="Its name, in lower case with hyphens.", examples=["numpy"])
    version: str = Field(max_length=_TEXT, description="Its version; empty: unknown.")


class CallersPython(Sent):
    """The Python of the caller: `tunerPython`, else `python3` of its PATH."""

    executable: str = Field(max_length=_TEXT, description="Its path.")
    version: str = Field(
        max_length=_TEXT, description="Its version; empty: unknown, see `problem`.", examples=["3.12.4"]
    )
    packages: list[Package] = Field(max_length=_PACKAGES, description="Its installed packages, by name.")
    problem: str = Field(max_length=_TEXT, description="Why it is unknown; empty: it is known.")


class CodeState(Sent):
    """The state of the code directory in git when the experiment was created."""

    directory: str = Field(max_length=_TEXT, description="The code directory.")
    commit: str = Field(max_length=_TEXT, description="Commit that is checked out; empty: unknown, see `problem`.")
    branch: str = Field(max_length=_TEXT, description="Branch; empty: none.")
    remote: str = Field(max_length=_TEXT, description="Address of `origin`, without a login; empty: none.")
    diff: str = Field(
        max_length=_DIFF,
        description="Uncommitted changes of tracked files in the directory, as by `git diff HEAD`; at most 1 MiB.",
    )
    is_diff_cut: bool = Field(description="Whether the diff was cut.")
    masked_values: int = Field(
        ge=0, description="Number of values in the diff that looked like secrets and were replaced by `***`."
    )
    untracked: list[str] = Field(
        max_length=_UNTRACKED,
        description="Paths of untracked files that are not ignored, at most 200, without content.",
    )
    problem: str = Field(max_length=_TEXT, description="Why the state is unknown; empty: it is known.")


class Provenance(Sent):
    """The facts to repeat an experiment, in addition to its config."""

    collected_ms: int = Field(ge=0, description="Time of the record, milliseconds since the epoch.")
    host: str = Field(max_length=_TEXT, description="The machine with the code directory.")
    system: str = Field(max_length=_TEXT, description="Its operating system and processor.")
    manager: str = Field(max_length=_TEXT, description="Version of nni_manager.", examples=["0.6.0"])
    seed: int | None = Field(description="The seed in the tuner's `classArgs`; null: a random seed.")
    python: CallersPython = Field(description="The Python of the caller and its packages.")
    code: CodeState = Field(description="The code directory in git.")
    experiment_file: str = Field(
        default="", max_length=_TEXT, description="Path of the experiment file on the manager's machine; empty: none."
    )
    experiment_file_digest: str = Field(
        default="",
        max_length=64,
        description="SHA-256 of its content when the experiment was created, including files that it names.",
    )
