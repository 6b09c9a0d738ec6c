"""Reads an experiment's config from text, file or store. Errors name file, line and field.

Only this module knows that there are several formats. Each has a module in `dialects`.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from nni_manager.config import dialects
from nni_manager.config.dialects import dialect_v1, dialect_v2, first_profile
from nni_manager.config.dialects.first_format_paths import KINDS, split
from nni_manager.config.reading.document import Document, fold
from nni_manager.config.reading.scalars import kind
from nni_manager.config.reading.source import MAX_BYTES, Source, read_text, too_large
from nni_manager.config.sections.experiment_model import FIELDS, marked
from nni_manager.config.sections.search_space import check_whole
from nni_manager.domain.errors import ConfigInvalid, InvalidInput, Problem
from nni_manager.domain.experiment import ExperimentSpec, Json
from nni_manager.platform_kit import registry

#: Fields that may change while an experiment exists.
CHANGEABLE = tuple(marked("changeable"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedConfig:
    """A config as it was read from its text."""

    spec: ExperimentSpec
    #: Reference → value, of the secrets that `spec` refers to.
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)


def read(
    text: str,
    *,
    directory: Path,
    file: str = "",
    working_directory: Path = Path("~/nni-experiments"),
    data_directory: Path | None = None,
    elsewhere: bool = False,
    absolute_paths: bool = False,
    environment: Mapping[str, str] | None = None,
    secrets: Mapping[str, str] | None = None,
) -> ParsedConfig:
    """The experiment that YAML or JSON text describes. Raises ConfigInvalid with all problems.

    Relative paths start at `directory`, or are refused (`absolute_paths`). Messages call the text `file`.
    `working_directory`: default of `experimentWorkingDirectory`. `data_directory`: holds the registered algorithms.
    `elsewhere`: the text is for another machine's daemon, so names of algorithms that may be registered there are
    accepted. Secrets are looked up in `secrets`, by reference, then in `environment` and in files; without an
    environment, references are not resolved.
    """
    source = _source(
        text,
        file,
        directory=os.path.realpath(directory),
        working_directory=str(working_directory),
        data_directory=str(data_directory or ""),
        elsewhere=elsewhere,
        absolute_paths=absolute_paths,
        environment=environment,
        sent_secrets=secrets or {},
    )
    values = _mapping(source)
    spec: ExperimentSpec = _dialect(values).read(values, source)
    return ParsedConfig(spec=spec, secrets=dict(source.secrets))


def load(text: str, *, directory: Path, **others: Any) -> ExperimentSpec:
    """The spec of the experiment that YAML or JSON text describes. Takes the arguments of `read`."""
    return read(text, directory=directory, **others).spec


def read_file(
    path: Path, data_directory: Path | None = None, environment: Mapping[str, str] | None = None
) -> ParsedConfig:
    """The experiment that a file describes, as by `read`; relative paths start at the file's folder."""
    text, directory = _text_of(path)
    return read(text, directory=directory, file=str(path), data_directory=data_directory, environment=environment)


def convert_file(path: Path, *, everything: bool = False) -> tuple[dict[str, Any], tuple[Problem, ...]]:
    """A file of NNI's first format in the second, with the values as written, and the fields lost or changed.

    `everything`: keep fields that NNI 3.0 refuses. Files that the config names need not exist. Raises ConfigInvalid.
    """
    text, directory = _text_of(path)
    source = _source(text, str(path), directory=os.path.realpath(directory), elsewhere=True)
    values = _mapping(source)
    if not dialect_v1.is_mine(values):
        source.refuse((), f"has NNI's second format already: it does not set {dialect_v1.PLATFORM}")
    source.check()
    printed, losses = dialect_v1.convert(values, source).printed(everything=everything)
    source.check()
    return printed, tuple(Problem(message=why, field=name, file=str(path)) for name, why in losses)


def _text_of(path: Path) -> tuple[str, Path]:
    absolute = os.path.abspath(os.path.expanduser(path))  # of a link, the folder of the link counts
    return read_text(absolute), Path(absolute).parent


def from_canonical(canonical: Json) -> ExperimentSpec:
    """The experiment of a canonical config, read without access to the file system. Raises ConfigInvalid."""
    if first_profile.is_mine(canonical):  # could not be converted on import: raises the reason
        canonical = first_profile.canonical(canonical, "~/nni-experiments")
    return dialect_v2.read(canonical, Source(directory="/", stored=True))


def canonical_of_nni(config: Json, working_directory: str) -> Json:
    """The canonical form of a config in NNI's database if it has the first format; else the config unchanged.

    `working_directory`: the parent of the experiment's folder. Raises ConfigInvalid.
    """
    return first_profile.canonical(config, working_directory) if first_profile.is_mine(config) else config


def change(spec: ExperimentSpec, fields: Mapping[str, object]) -> ExperimentSpec:
    """The experiment with some of `CHANGEABLE` changed; None removes a limit or the name.

    Raises InvalidInput for a field that cannot change, ConfigInvalid for a value that a config may not have.
    """
    for name in fields:
        if name not in CHANGEABLE:
            raise InvalidInput(
                f"{name} cannot be changed after the experiment was created; {', '.join(CHANGEABLE)} can"
            )
    changed = _with(spec, fields)
    dialect_v2.check_changed(fields)
    if "searchSpace" in fields:
        check_whole(changed.search_space, changed.tuner)
    return changed


def in_debug(spec: ExperimentSpec) -> ExperimentSpec:
    """The experiment with `debug` switched on, as if its file said so."""
    sections: Any = spec.canonical["trainingService"]
    level = spec.log_level if spec.log_level == "trace" else "debug"
    one_or_all = sections if isinstance(sections, list) else [sections]
    services = [{**section, "debug": True} for section in one_or_all]
    section = services if isinstance(sections, list) else services[0]
    return _with(spec, {"debug": True, "logLevel": level, "trainingService": section})


def _with(spec: ExperimentSpec, fields: Mapping[str, object]) -> ExperimentSpec:
    """The experiment with some canonical fields changed; the warnings of its file stay."""
    return replace(from_canonical({**spec.canonical, **fields}), warnings=spec.warnings)


def _source(text: str, file: str, **others: Any) -> Source:
    """The source of a parsed text. Raises ConfigInvalid for invalid YAML."""
    from nni_manager.config.reading import yaml_reader  # imports the YAML library, only if there is text to read

    if len(text) > MAX_BYTES or len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise ConfigInvalid.of(too_large(), file=file)
    return Source(file=file, document=yaml_reader.read(text, file), **others)


def _dialect(values: Mapping[str, object]) -> ModuleType:
    """The module for a file's format: the one that recognizes the file, else the second format's."""
    return next((one for one in _other_dialects() if one.is_mine(values)), dialect_v2)


@cache
def _other_dialects() -> tuple[ModuleType, ...]:
    """Every ``dialects/dialect_*.py`` except the second format's; each has `is_mine` and `read`."""
    names = (one.name for one in pkgutil.iter_modules(dialects.__path__) if one.name.startswith("dialect_"))
    found = (importlib.import_module(f"{dialects.__name__}.{name}") for name in names)
    return tuple(module for module in found if module is not dialect_v2)


def _mapping(source: Source) -> dict[str, object]:
    """The values of a text. Raises ConfigInvalid if it is not a mapping or mixes NNI's two formats."""
    assert source.document is not None
    values: object = source.document.root.value
    if isinstance(values, dict):
        if _dialect(values) in (dialect_v1, dialect_v2):
            _refuse_mixed(values, source.document, source)
        return values
    found = "is empty" if values is None else f"holds {kind(values)}"
    sentence = f"a config must be a mapping of fields, such as trialCommand, to values; this one {found}"
    source.refuse((), sentence)
    source.check()
    return {}


#: Sections that both formats have.
_IN_BOTH = {fold(name) for name in (*KINDS, "sharedStorage")}
#: Fields that make a file one of the second format.
_SECOND = ("trainingService", "trialCommand", "trialCodeDirectory", "searchSpaceFile", "searchSpace")


def _refuse_mixed(values: Mapping[str, object], document: Document, source: Source) -> None:
    """Note a problem for every top-level field that belongs to the other of NNI's two formats."""
    first = {fold(name): new for name, new in dialect_v1.top_names().items()}
    second = {fold(name): name for name in FIELDS}
    unknown = [key for key in values if fold(key) not in first.keys() | second.keys()]
    of_platforms = _of_platforms() if unknown else {}
    if dialect_v1.is_mine(values):
        _, line = document.locate((dialect_v1.PLATFORM,))
        mark = f"{dialect_v1.PLATFORM} in line {line} makes this file one of the first"
        for key in values:
            if fold(key) in second.keys() - first.keys() - _IN_BOTH:
                source.refuse((key,), f"belongs to NNI's second config format, and {mark}; {_instead(key)}")
        return
    mark = _mark_of_format(values, document)
    for key in values:
        if fold(key) in first.keys() - second.keys():
            source.refuse((key,), f"belongs to NNI's first config format, {mark}; here it is {first[fold(key)]}")
        elif fold(key) in of_platforms:
            source.refuse(
                (key,),
                f"belongs to NNI's first config format, {mark}; here it is a part of trainingService: "
                f"{{platform: {of_platforms[fold(key)]}}}",
            )


def _of_platforms() -> dict[str, str]:
    """The sections at the top of a file of the first format → the platform that each belongs to."""
    found = {}
    for one in registry.descriptions():
        for pattern in one.first_format.fields if one.first_format else ():
            found[fold(split(pattern)[0])] = one.name
    return found


def _mark_of_format(values: Mapping[str, object], document: Document) -> str:
    key = next((key for name in _SECOND for key in values if fold(key) == fold(name)), None)
    if key is None:
        return f"which requires {dialect_v1.PLATFORM}"
    return f"and {key} in line {document.locate((key,))[1]} makes this file one of the second"


def _instead(key: str) -> str:
    olds = [old for old, new in dialect_v1.top_names().items() if fold(new) == fold(key)]
    return f"there it is {olds[0]}" if olds else "keep one format"


_FOLDERS = ("trialCodeDirectory", "codeDirectory")
#: Sections with such fields, in addition to the top level. Arguments of a user's class are never changed.
_WITH_FOLDERS = ("tuner", "assessor", "trainingService")


def move_code(canonical: Mapping[str, Any], old: str, new: str) -> dict[str, Any]:
    """The config after a folder of code has moved: `new` in place of `old`.

    Changes each of `_FOLDERS` that is `old` or lies in it. Both paths are absolute.
    """
    sections = {name: _move_all(canonical[name], old, new) for name in _WITH_FOLDERS if name in canonical}
    return _move({**canonical, **sections}, old, new)


def _move_all(sections: Any, old: str, new: str) -> Any:
    """The sections with their folders changed. `sections`: a section, a list, or null, as in NNI's configs."""
    if isinstance(sections, list):
        return [_move_all(section, old, new) for section in sections]
    return _move(sections, old, new) if isinstance(sections, dict) else sections


def _move(section: Mapping[str, Any], old: str, new: str) -> dict[str, Any]:
    inside = {
        name: new + section[name].removeprefix(old)
        for name in _FOLDERS
        if f"{section.get(name, '')}/".startswith(f"{old}/")
    }
    return {**section, **inside}
