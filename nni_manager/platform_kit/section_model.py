"""The models of platforms' config sections: common fields, and marks of fields for the loader.

Values arrive canonical: keys in camelCase, paths absolute, GPU indices a list, memory in MB, and fields that platforms
share with the top level (`trialCommand` and so on) already copied in. Marks in a field's schema instruct the loader:

* ``format``: see `config.sections.formats`
* ``secret``: see `config.secrets`
* ``opaque``: not searched for placeholders, not changed
* ``oldNames``: accepted with a warning; ``otherNames``: accepted
* ``holds``: dotted keys that the YAML file must have
* ``unless``: fields that make this one unnecessary

A platform's part of NNI's first config format consists of tables, `FirstFormat`, next to its model. A path is dotted;
``[]`` after a name stands for every entry of a list. On the left it starts at the top of the file, as in
``machineList[].ip``; on the right in the platform's section, or, with a leading `/`, at the top of the config.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from nni_manager.domain.experiment import Json

#: NNI's image for trials of a section without an image.
DEFAULT_IMAGE = "msranni/nni:latest"

#: (field within the section, or path in the file, sentence): an error in a section, or a warning about it.
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
        description="Name of this training service: its platform, optionally with a hyphen and a number, such as "
        "`openpai-2`. Default: by position.",
    )
    trial_command: str | None = Field(
        default=None,
        min_length=1,
        description="Shell command of a trial. Default: the top level's.",
        json_schema_extra={"opaque": True},
    )
    trial_code_directory: str | None = Field(
        default=None,
        description="Folder that every job gets a copy of. Default: the top level's.",
        json_schema_extra={"format": "directory"},
    )
    # stands before fields of platforms with rules that depend on it
    trial_gpu_number: int | None = Field(
        default=None,
        ge=0,
        description="Number of GPUs of a trial. Not set: all GPUs are visible, and none is reserved. 0: no GPU is "
        "visible. Default: the top level's.",
    )
    trial_concurrency: int | None = Field(
        default=None,
        gt=0,
        description="Maximum number of trials that run here at the same time, in addition to the top level's maximum.",
    )
    trial_python_version: str | None = Field(
        default=None,
        description="Python version that `python3` must have here, in quotes. Default: the top level's.",
        json_schema_extra={"format": "python-version"},
    )
    nni_manager_ip: str | None = Field(
        default=None,
        description="Address at which jobs reach this machine. Default: the top level's, or this machine's address.",
    )
    debug: bool = Field(default=False, description="Log more and skip the version check. Default: the top level's.")

    @classmethod
    def supplies_command(cls, values: Mapping[str, object]) -> bool:
        """Whether the section, canonical but not validated, needs no `trialCommand`: a role or a job file has it."""
        return False

    def faults(self, experiment: Json) -> Iterable[Remark]:
        """Errors of the section. `experiment`: the whole config, canonical; other sections may be invalid."""
        return ()

    def warnings(self, experiment: Json) -> Iterable[Remark]:
        """Warnings about the section: facts that the user should know, without refusing it."""
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
    """A field with marks for the loader; required unless it has a `default`. `rules`: pydantic's."""
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
    """A field whose value is stored apart from the config and hidden in reprs: a text, ``${VARIABLE}``,
    ``file:path``."""
    return marked(f"{description} Secret.", default=default, secret=True, min_length=1, repr=False, **others)


#: Indices of the GPUs of a job, a machine or a role.
GpuIndices = Annotated[list[int], Field(min_length=1)]


#: Only the manager writes into the experiment's folder itself: attempts have folders of their own.
_Modes = Literal["0700", "0710", "0711", "0750", "0755"]


def _spelled(mode: object) -> object:
    """The mode as text: YAML reads 0711 as decimal 711 or as octal, depending on its version."""
    if type(mode) is not int:
        return mode
    found = f"{mode:04d}"
    return found if found in get_args(_Modes) else f"{mode:04o}"


Mode = Annotated[_Modes, BeforeValidator(_spelled)]
#: None: the platform's usual mode.
OptionalMode = Annotated[_Modes | None, BeforeValidator(_spelled)]


def mode_field() -> Any:
    """The field `mode` of a section that runs containers."""
    return marked(
        "Mode of the experiment's folder on the storage. `0711` admits containers of other users. `0700` suffices if "
        "they run as the manager's user, or as root without root squashing. Default: `0711`.",
        default=None,
    )


def folder_mode(mode: object) -> int:
    """The mode as a number; default: 0711."""
    return int(str(mode or "0711"), 8)


#: A trial's own fields on platforms with a single command, folder and number of GPUs.
TRIAL: Mapping[str, str] = {
    "trial.command": "/trialCommand",
    "trial.codeDir": "/trialCodeDirectory",
    "trial.gpuNum": "/trialGpuNumber",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstFormat:
    """One platform's part of NNI's first config format."""

    #: Path in the file → path in the config. If two lead to the same place, the first one counts.
    fields: Mapping[str, str]
    #: Required paths in the file, unless a list or mapping above them is missing.
    required: tuple[str, ...] = ()
    #: Ignored paths in the file → reason.
    dropped: Mapping[str, str] = field(default_factory=dict)
    #: Completes the section after all fields are set, and the top level of the config.
    complete: Callable[[dict[str, Any], dict[str, Any]], None] = lambda _section, _config: None
    #: Errors of a file in addition to those of the section: (path in the file, sentence).
    faults: Callable[[Mapping[str, Any]], Iterable[Remark]] = lambda _file: ()
    #: Paths in the section that NNI 3.0 does not know; it runs without them.
    ours: tuple[str, ...] = ()
    #: Fields of the section with which NNI 3.0 cannot run the file.
    only_here: tuple[str, ...] = ()
    #: Adds fields that only NNI 3.0 needs to a copy of the section, given the top level of the config.
    complete_for_nni: Callable[[dict[str, Any], dict[str, Any]], None] = lambda _section, _config: None


#: `trial.nasMode` belongs to several platforms.
NAS_MODE: Mapping[str, str] = {"trial.nasMode": "neural architecture search is not supported"}


# Fields about GPUs without effect, or without a GPU for a trial

_NEEDS_GPUS = "has a meaning only when trialGpuNumber is above 0; set that, or remove this field"


def gpu_faults(
    gpu_number: int | None,
    *,
    gpu_indices: Sequence[int] | None,
    max_trial_number_per_gpu: int | None,
    gpu_memory: int | None = None,
    above: str = "",
) -> Iterator[Remark]:
    """Errors in the GPU fields of a section, or of a machine in it.

    `above`: prefix of the fields' names, e.g. ``machineList[0].``.
    """
    if not gpu_number:
        if gpu_memory is not None:
            yield f"{above}trialGpuMemory", _NEEDS_GPUS
        if max_trial_number_per_gpu not in (None, 1):
            yield f"{above}maxTrialNumberPerGpu", _NEEDS_GPUS
    elif gpu_indices is not None and len(gpu_indices) < gpu_number:
        names = "1 GPU" if len(gpu_indices) == 1 else f"{len(gpu_indices)} GPUs"
        yield (
            f"{above}gpuIndices",
            f"names {names}, and a trial needs {gpu_number}; name more, or lower trialGpuNumber",
        )


def gpu_warnings(
    gpu_number: int | None, *, gpu_indices: Sequence[int] | None, use_active_gpu: bool | None, above: str = ""
) -> Iterator[Remark]:
    """Remarks on GPU fields without effect. They are not errors, as NNI accepts such files; see `gpu_faults`."""
    given = {"gpuIndices": gpu_indices, "useActiveGpu": use_active_gpu}
    if not gpu_number:
        idle = "changes nothing while trialGpuNumber is 0 or not set"
        yield from ((f"{above}{name}", idle) for name, value in given.items() if value)
