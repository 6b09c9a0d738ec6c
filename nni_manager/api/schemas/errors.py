"""The one shape of every refusal."""

from __future__ import annotations

from pydantic import Field

from nni_manager.api.schemas.wire import Wire


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
