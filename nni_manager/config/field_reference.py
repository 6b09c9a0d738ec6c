"""The reference documentation of a config's fields, in both of NNI's formats: type, default and sentence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from nni_manager.config.dialects import dialect_v1
from nni_manager.config.sections.model_fields import fields_of, marks_of, models_in
from nni_manager.platform_kit import registry
from nni_manager.platform_kit.first_format import FirstFormat
from nni_manager.platform_kit.registry import PlatformDescription
from nni_manager.shared_storage.section import KINDS

#: Field → (default, meaning), of the second format.
TOP_LEVEL: Mapping[str, tuple[str, str]] = {
    "experimentName": ("none", "Shown in lists and on pages."),
    "experimentType": ("`hpo`", "`hpo`; architecture search (`nas`) is refused."),
    "searchSpaceFile": ("none", "A JSON or YAML file that holds the search space; either this or `searchSpace`."),
    "searchSpace": ("none", "The search space itself: name → {`_type`, `_value`}; an empty one is `{}`."),
    "trialCommand": ("required", "Shell command of a trial, unless every platform's section has one."),
    "trialCodeDirectory": ("`.`", "Folder of the trial's code."),
    "trialConcurrency": ("required", "How many trials may run at a time, 1 to 100000."),
    "trialGpuNumber": ("none", "GPUs of a trial; not set: all visible, none reserved; 0: none visible."),
    "trialGpuMemory": (
        "none",
        "Memory of each GPU of a trial, such as `8GB`: trials share GPUs as far as it goes. Ours.",
    ),
    "maxExperimentDuration": ("none", "How long it may be active: `90s`, `1.5h`, `2d`, or seconds."),
    "maxTrialNumber": ("none", "How many trials are made in all."),
    "maxTrialDuration": ("none", "How long one trial may run; then it is stopped."),
    "maxTrialRetries": ("0", "How often a trial is tried again when its own code failed. Ours."),
    "maxSameFailures": (
        "10",
        "So many trials in a row that fail in the same way put the experiment on hold; 0: any number may. Ours.",
    ),
    "maxFailedTrials": (
        "none",
        "How many trials may fail, or what share of `maxTrialNumber` (`20%`); one more puts it on hold. Ours.",
    ),
    "gracePeriod": ("`5s`", "Time between SIGTERM and SIGKILL. Ours."),
    "metricGrace": ("`10s`", "How long results of a trial that has ended are waited for. Ours."),
    "maxLogSize": (
        "`100MB`",
        "What is kept of the logs of one attempt that runs elsewhere; of more, beginning and end. Ours.",
    ),
    "nniManagerIp": ("this machine's address", "How jobs reach this machine."),
    "useAnnotation": ("`false`", "Accepted as false; code annotation is refused."),
    "multiPhase": ("`false`", "Accepted as false; multi-phase trials are refused."),
    "debug": ("`false`", "Log more, skip the version check."),
    "versionCheck": ("`true`", "Refuse trial runners of another version. Ours here, NNI's in the first format."),
    "logLevel": ("`info`", "`fatal`, `error`, `warning`, `info`, `debug` or `trace`; with `debug`: `debug`."),
    "logCollection": ("`none`", "`http` or `none`: kept from the first format for the platforms that go by it."),
    "experimentWorkingDirectory": ("the data directory", "Where the experiment's folder is made."),
    "tunerGpuIndices": ("none", 'GPUs that the tuner sees: `[0, 1]`, `0` or `"0,1"`.'),
    "tunerPython": (
        "`python3`",
        "The Python of a tuner or assessor of your own: a path, or a name on `PATH`. Ours.",
    ),
    "callerEnvironment": (
        "all",
        "Names of the variables of your environment that are kept for the tuner and for trials on this machine, such as"
        " `[PATH, HOME]`; `[]`: none. Ours.",
    ),
    "tuner": ("required", "`name` and `classArgs` of a built-in, or `className`, `codeDirectory` and `classArgs`."),
    "assessor": ("none", "As `tuner`."),
    "advisor": ("none", "An older name of `tuner`."),
    "trainingService": ("required", "One platform's section, or a list of several."),
    "sharedStorage": ("none", "A folder that the manager and its trials mount; see below."),
    "deprecated": ("none", "Fields of the first format that nothing goes by: `multiThread` and the like."),
}


_HEAD = """\
# Every field of an experiment file

Made from the models by `make docs`; do not edit. Keys are matched whatever their case and underscores; a field that is
null is a field that is not set; relative paths start at the file's folder. Fields marked *secret* may be written out,
refer to a variable of the caller's environment (`${VARIABLE}`) or to a file (`file:path`); the config keeps the
reference, and the value is kept beside it. `nnictl config check FILE…` says what is wrong, with file, line and field.
"""
_WORDS = {"str": "text", "int": "whole number", "float": "number", "bool": "true or false"}
_FORMATS = {
    "duration": "duration",
    "seconds": "duration",
    "memory": "memory: `8GB`, `512mb`, or MB",
    "quantity": "quantity",
    "gpu-indices": "GPU indices",
    "url": "address",
    "directory": "folder",
    "manager-directory": "folder",
    "file": "file",
    "path": "path",
    "mount-point": "path",
    "absolute": "absolute path",
    "elsewhere": "path",
    "whole-number": "whole number",
    "text": "text",
}


_SEVERAL = """\
Of several, a trial goes to the one with the fewest trials at work among those that can take it now: not away, not on
hold, below its own `trialConcurrency`, with room. Of equal ones the first of the list is taken. Each may have a
`trialCommand`, `trialCodeDirectory`, `trialGpuNumber` and `nniManagerIp` of its own; `local` runs its code in place.
"""


def reference() -> str:
    """The whole reference documentation, as Markdown."""
    parts = [_HEAD, *_top_level(), *_platforms(), *_shared_storage(), *_first_format()]
    return "\n".join(parts)


def _top_level() -> Iterator[str]:
    yield "## Top level\n"
    yield _table(("Field", "Default", "Meaning"), ((f"`{name}`", *rest) for name, rest in TOP_LEVEL.items()))


def _platforms() -> Iterator[str]:
    yield "## Platforms\n"
    yield (
        "`trainingService` is one of these sections, or a list of them. Several of one kind are called `openpai`,"
        " `openpai-2`…\n"
    )
    yield _SEVERAL
    for one in registry.descriptions():
        yield f"### {one.name}\n"
        yield f"{one.summary[0].upper()}{one.summary[1:]}.{_state(one)}\n"
        yield from _model(one.config, "")


def _state(one: PlatformDescription) -> str:
    old = f" Also called {', '.join(f'`{name}`' for name in one.old_names)}." if one.old_names else ""
    return old + ("" if one.adapter else " Checked, and not in this version yet.")


def _shared_storage() -> Iterator[str]:
    yield "## sharedStorage\n"
    yield (
        "For `local`, `remote`, and both together; what it does is told in [Operations](operations.md#shared-storage)."
        " Other platforms have fields of their own for the storage of their jobs.\n"
    )
    for model in KINDS:
        yield from _model(model, "")


def _first_format() -> Iterator[str]:
    yield "## NNI's first format\n"
    yield (
        f"Files with `{dialect_v1.PLATFORM}`. `nnictl config convert FILE` prints the second format as NNI 3.0 loads"
        " it, names what it leaves out, and with `--all` leaves in what nni_manager alone goes by.\n"
    )
    yield _mapping(dialect_v1.COMMON)
    for one in registry.descriptions():
        if one.first_format is not None:
            yield f"### {one.name} in the first format\n"
            yield _mapping(one.first_format.fields, one.first_format)


def _mapping(fields: Mapping[str, str], table: FirstFormat | None = None) -> str:
    rows = [(f"`{old}`", f"`{new.removeprefix('/')}`") for old, new in fields.items()]
    rows += [(f"`{old}`", f"nothing: {why}") for old, why in (table.dropped.items() if table else ())]
    return _table(("First format", "Second format"), rows)


def _model(model: type[BaseModel], place: str) -> Iterator[str]:
    """The table of a model's fields, then those of the mappings in it."""
    rows = [(f"`{place}{name}`", _kind(field), _default(field), _meaning(field)) for name, field in _own(model)]
    yield _table(("Field", "Kind", "Default", "Meaning"), rows)
    for name, field in _own(model):
        is_list = _is_list(field.annotation)
        for inner in models_in(field.annotation):
            yield from _model(inner, f"{place}{name}{'[]' if is_list else ''}.")


def _own(model: type[BaseModel]) -> Iterable[tuple[str, FieldInfo]]:
    return fields_of(model).items()


def _kind(field: FieldInfo) -> str:
    marks = marks_of(field)
    word = _FORMATS.get(str(marks.get("format", "")), "") or _type(field.annotation)
    return f"{word}, *secret*" if marks.get("secret") else word


def _type(annotation: Any) -> str:
    if models_in(annotation):
        return "list of mappings" if _is_list(annotation) else "mapping"
    words = [_word(part) for part in _parts(annotation)]
    return " or ".join(dict.fromkeys(filter(None, words)))


def _parts(annotation: Any) -> list[Any]:
    is_choice = str(get_origin(annotation)) in ("typing.Union", "<class 'types.UnionType'>")
    return [part for part in get_args(annotation) if part is not type(None)] if is_choice else [annotation]


def _word(part: Any) -> str:
    if get_origin(part) is not None and "Literal" in str(get_origin(part)):
        return " or ".join(f"`{one}`" for one in get_args(part))
    if get_origin(part) in (list, dict):
        return "list" if get_origin(part) is list else "mapping"
    return _WORDS.get(getattr(part, "__name__", ""), "anything")


def _is_list(annotation: Any) -> bool:
    return any(get_origin(part) is list for part in _parts(annotation))


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    if field.default is None or field.default == []:
        return "none"
    return f"`{str(field.default).lower() if isinstance(field.default, bool) else field.default}`"


def _meaning(field: FieldInfo) -> str:
    old = [f"`{name}`" for name in marks_of(field).get("oldNames", ())]
    return " ".join([field.description or "", *([f"Older name: {', '.join(old)}."] if old else [])]).replace("|", "\\|")


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"


if __name__ == "__main__":
    print(reference(), end="")  # the documentation's file is made of it
