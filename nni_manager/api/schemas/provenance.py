"""What was recorded of a new experiment, so that it can be repeated."""

from __future__ import annotations

from pydantic import Field

from nni_manager.api.schemas.daemon import Sent

#: Characters of a text, and of the diff: a megabyte, some of it as replaced bytes.
_TEXT, _DIFF = 4096, 2**20
_PACKAGES, _UNTRACKED = 2000, 200


class Package(Sent):
    """A package that was installed."""

    name: str = Field(max_length=_TEXT, description="Its name, with hyphens and in small letters.", examples=["numpy"])
    version: str = Field(max_length=_TEXT, description="Its version; empty: its folder does not say.")


class CallersPython(Sent):
    """The Python of the caller: `tunerPython`, else `python3` of its PATH."""

    executable: str = Field(max_length=_TEXT, description="Its path.")
    version: str = Field(max_length=_TEXT, description="Empty: not known, `problem` says why.", examples=["3.12.4"])
    packages: list[Package] = Field(max_length=_PACKAGES, description="What is installed in it, by name.")
    problem: str = Field(max_length=_TEXT, description="Why it is not known; empty: it is.")


class CodeState(Sent):
    """The code directory in git, when the experiment was made."""

    directory: str = Field(max_length=_TEXT, description="The code directory.")
    commit: str = Field(max_length=_TEXT, description="What is checked out; empty: not known, `problem` says why.")
    branch: str = Field(max_length=_TEXT, description="Empty: none.")
    remote: str = Field(max_length=_TEXT, description="Address of `origin`, without a login; empty: there is none.")
    diff: str = Field(
        max_length=_DIFF,
        description="What is not committed, of tracked files in the directory, as `git diff HEAD`; at most 1 MiB.",
    )
    is_diff_cut: bool = Field(description="Whether the diff was longer.")
    masked_values: int = Field(ge=0, description="Values in the diff that looked like secrets and became `***`.")
    untracked: list[str] = Field(
        max_length=_UNTRACKED,
        description="Paths of files that git neither knows nor ignores, at most 200; not their content.",
    )
    problem: str = Field(max_length=_TEXT, description="Why the state is not known; empty: it is.")


class Provenance(Sent):
    """What is needed to repeat an experiment, beside its config."""

    collected_ms: int = Field(ge=0, description="When it was collected, milliseconds since the epoch.")
    host: str = Field(max_length=_TEXT, description="The machine where the code directory is.")
    system: str = Field(max_length=_TEXT, description="Its operating system and processor.")
    manager: str = Field(max_length=_TEXT, description="Version of nni_manager.", examples=["0.6.0"])
    seed: int | None = Field(description="The seed in the tuner's `classArgs`; null: it draws its own.")
    python: CallersPython = Field(description="The Python of the caller, and what is installed in it.")
    code: CodeState = Field(description="The code directory in git.")
    experiment_file: str = Field(
        default="", max_length=_TEXT, description="Path of the experiment file on the manager's machine; empty: none."
    )
    experiment_file_digest: str = Field(
        default="",
        max_length=64,
        description="SHA-256 of what it said when the experiment was created, with the files that it names.",
    )
