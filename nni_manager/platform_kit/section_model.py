"""The models of platforms' config sections: common fields, and marks of fields for the loader.

Values arrive canonical: keys in camelCase, paths absolute, GPU indices a list, memory in MB, and what the top level
of the config shares with the platforms (`trialCommand` and so on) already copied in. Marks in a field's schema tell
the loader how to make its value so:

* ``format``: see `config.sections.formats`
* ``secret``: see `config.secrets`
* ``opaque``: neither searched for placeholders nor changed
* ``oldNames``: accepted with a warning; ``otherNames``: accepted
* ``holds``: dotted keys that the YAML file must have
* ``unless``: fields that leave this one out
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from nni_manager.domain.experiment import Json

#: NNI's image for trials where a section names none.
DEFAULT_IMAGE = "msranni/nni:latest"

#: (field within the section, sentence): a fault of a section, or a warning about it.
Remark = tuple[str, str]


class Part(BaseModel):
    """A mapping within a section."""

    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, alias_generator=to_camel, hide_input_in_errors=True
    )


class PlatformSection(Part):
    """``trainingService: {platform: …}``: the fields that every platform has."""

    platform: str
    name: str | None = Field(
        default=None,
        description="What this training service is called: its platform, or that, a hyphen and a number, "
        "`openpai-2`. Default: by its position.",
    )
    trial_command: str | None = Field(
        default=None,
        min_length=1,
        description="Shell command of a trial. Default: the top level's.",
        json_schema_extra={"opaque": True},
    )
    trial_code_directory: str | None = Field(
        default=None,
        description="Folder that is packed and sent to every job. Default: the top level's.",
        json_schema_extra={"format": "directory"},
    )
    # stands before fields of platforms with rules that depend on it
    trial_gpu_number: int | None = Field(
        default=None,
        ge=0,
        description="GPUs of a trial. Not set: all GPUs visible, none reserved; 0: no GPU visible. "
        "Default: the top level's.",
    )
    trial_concurrency: int | None = Field(
        default=None, gt=0, description="How many trials may run here at a time, beside the top level's number for all."
    )
    trial_python_version: str | None = Field(
        default=None,
        description="The Python that trials need here as `python3`, major and minor version in quotes. Default: the top"
        " level's.",
        json_schema_extra={"format": "python-version"},
    )
    nni_manager_ip: str | None = Field(
        default=None, description="How jobs reach this machine. Default: the top level's, else its own address."
    )
    debug: bool = Field(default=False, description="Log more, skip the version check. Default: the top level's.")

    @classmethod
    def supplies_command(cls, values: Mapping[str, object]) -> bool:
        """Whether the section, canonical but not judged yet, needs no `trialCommand`: a role or a job file has it."""
        return False

    def faults(self, experiment: Json) -> Iterable[Remark]:
        """Faults of the section beside the config, `experiment`: canonical, whole, other sections perhaps wrong."""
        return ()

    def warnings(self, experiment: Json) -> Iterable[Remark]:
        """Warnings about the section: facts that the user should know and that refuse nothing."""
        return ()


def marked(
    description: str,
    *,
    default: Any = ...,
    format: str = "",
    secret: bool = False,
    opaque: bool = False,
    old_names: tuple[str, ...] = (),
    other_names: tuple[str, ...] = (),
    holds: tuple[str, ...] = (),
    unless: tuple[str, ...] = (),
    **rules: Any,
) -> Any:
    """A field with marks for the loader; required unless there is a `default`. `rules`: pydantic's."""
    marks: dict[str, Any] = {
        "format": format,
        "secret": secret,
        "opaque": opaque,
        "oldNames": list(old_names),
        "otherNames": list(other_names),
        "holds": list(holds),
        "unless": list(unless),
    }
    extra = {name: value for name, value in marks.items() if value}
    return Field(default=default, description=description, json_schema_extra=extra or None, **rules)


def secret(description: str, *, default: Any = ..., **others: Any) -> Any:
    """A field with a value kept apart from the config and out of reprs: a text, ``${VARIABLE}``, or ``file:path``."""
    return marked(f"{description} Secret.", default=default, secret=True, min_length=1, repr=False, **others)


#: Indices of the GPUs of a job, a machine or a role.
GpuIndices = Annotated[list[int], Field(min_length=1)]
