"""The reference documentation of a config's fields, in both of NNI's formats: type, default and sentence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from nni_manager.config.dialects import dialect_v1
from nni_manager.config.sections.experiment_model import Experiment
from nni_manager.config.sections.formats import FORMATS
from nni_manager.config.sections.model_fields import alternatives, fields_of, is_list, marks_of, models_in
from nni_manager.platform_kit import registry
from nni_manager.platform_kit.registry import PlatformDescription
from nni_manager.platform_kit.section_model import FirstFormat
from nni_manager.shared_storage.section import KINDS

_HEAD = """\
# Every field of an experiment file

Made from the models by `make docs`; do not edit. Keys are matched whatever their case and underscores; a field that is
null is a field that is not set; relative paths start at the file's folder. Fields marked *secret* may be written out,
refer to a variable of the caller's environment (`${VARIABLE}`) or to a file (`file:path`); the config keeps the
reference, and the value is kept beside it. `nnictl config check FILE…` says what is wrong, with file, line and field.

Editors complete and check the fields by a JSON schema: `nnictl config schema > experiment.schema.json` writes it, and
the line `# yaml-language-server: $schema=experiment.schema.json` at the top of an experiment file names it. The schema
describes the second format, with fields as they are spelled here.
"""
_WORDS = {"str": "text", "int": "whole number", "float": "number", "bool": "true or false"}
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
    fields = fields_of(Experiment).items()
    rows = ((f"`{name}`", marks_of(field).get("shown", "none"), field.description or "") for name, field in fields)
    yield _table(("Field", "Default", "Meaning"), rows)


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
        "For `local`, `remote`, `openpai` and `aml`; what it does is told in"
        " [Operations](operations.md#shared-storage). Other platforms have fields of their own for the"
        " storage of their jobs.\n"
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
    rows = [
        (f"`{place}{name}`", _kind(field), _default(field), _meaning(field)) for name, field in fields_of(model).items()
    ]
    yield _table(("Field", "Kind", "Default", "Meaning"), rows)
    for name, field in fields_of(model).items():
        entry = "[]" if is_list(field.annotation) else ""
        for inner in models_in(field.annotation):
            yield from _model(inner, f"{place}{name}{entry}.")


def _kind(field: FieldInfo) -> str:
    marks = marks_of(field)
    format = FORMATS.get(marks.get("format", ""))
    word = (format and format.words) or _type(field.annotation)
    return f"{word}, *secret*" if marks.get("secret") else word


def _type(annotation: Any) -> str:
    if models_in(annotation):
        return "list of mappings" if is_list(annotation) else "mapping"
    words = [_word(part) for part in alternatives(annotation)]
    return " or ".join(dict.fromkeys(filter(None, words)))


def _word(part: Any) -> str:
    if get_origin(part) is not None and "Literal" in str(get_origin(part)):
        return " or ".join(f"`{one}`" for one in get_args(part))
    if get_origin(part) in (list, dict):
        return "list" if get_origin(part) is list else "mapping"
    return _WORDS.get(getattr(part, "__name__", ""), "anything")


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
