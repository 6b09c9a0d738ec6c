"""Answers to questions about trials. The analysis process makes their text; this model describes what all have."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from nni_manager.api.schemas.daemon import Wire


class Analysis(Wire):
    """An answer; its other fields go by the question."""

    model_config = ConfigDict(extra="allow")

    revision: str = Field(description="Of the experiment: answers of one revision are equal.")
    shown: int | None = Field(default=None, description="How many trials are drawn, where trials are.")
    of: int | None = Field(default=None, description="How many of them there are.")
    not_numbers: int | None = Field(default=None, description="How many have a final result that is no finite number.")
    clipped: int | None = Field(default=None, description="How many are hidden as outliers.")
