"""Converts the config sections `trainingService` and `sharedStorage` to their canonical forms.

Each platform's own model validates its section.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping

from pydantic import BaseModel

from nni_manager.config.dialects.first_format_paths import foreign_names
from nni_manager.config.reading import scalars
from nni_manager.config.reading.document import Path, fold
from nni_manager.config.reading.scalars import kind
from nni_manager.config.reading.source import Source, steps
from nni_manager.config.sections.model_fields import fields_of, marks_of, names_marked
from nni_manager.config.sections.model_section import read_choice, read_model, validate
from nni_manager.domain.errors import InvalidInput
from nni_manager.domain.service import NAME, service_names
from nni_manager.platform_kit import registry
from nni_manager.platform_kit.section_model import PlatformSection

#: Fields that are copied from the top level into each platform's section if the section does not set them.
SHARED = (
    "trialCommand",
    "trialCodeDirectory",
    "trialGpuNumber",
    "trialGpuMemory",
    "trialPythonVersion",
    "nniManagerIp",
    "debug",
)

#: Maximum number of training services of an experiment; its loop checks each in every turn.
MOST_SERVICES = 100

Settings = dict[str, object]


def read_platforms(raw: object, path: Path, shared: Settings, source: Source) -> list[Settings]:
    """The canonical sections of the training services. Problems are noted in `source`.

    `raw`: a section or, for several platforms, a list; `shared`: the top level's values of `SHARED`.
    """
    if not isinstance(raw, list):
        return list(_read_all({path: raw}, shared, source))
    if not raw:
        source.refuse(path, "is an empty list; name at least one platform")
    if len(raw) > MOST_SERVICES:
        source.refuse(path, f"lists {len(raw)} training services; an experiment has {MOST_SERVICES} at most")
        raw = raw[:MOST_SERVICES]
    sections = list(_read_all({(*path, number): item for number, item in enumerate(raw)}, shared, source))
    if len(raw) > 1:
        sections = [{**section, "reuseMode": True} if "reuseMode" in section else section for section in sections]
    return sections


def judge(sections: list[Settings], path: Path, experiment: Mapping[str, object], source: Source) -> None:
    """Note problems and warnings of sections that depend on the rest of the config.

    `experiment`: the whole canonical config.
    """
    if source.stored:
        return
    for number, settings in enumerate(sections):
        model = _ours(registry.find(str(settings["platform"])).config)
        if model is not None:
            place = (*path, number) if len(sections) > 1 else path
            _judge(model.model_validate(settings), place, experiment, source)


def needs_command(raw: object) -> bool:
    """Whether the section inherits its command from the top level; true for an invalid section."""
    if not isinstance(raw, dict):
        return True
    values = {fold(key): value for key, value in raw.items()}
    if values.get("trialcommand") is not None:
        return False
    try:
        model = _ours(registry.find(str(values.get("platform"))).config)
    except InvalidInput:
        return True
    return model is None or not model.supplies_command(_canonical_keys(raw, model))


def _ours(model: type[BaseModel]) -> type[PlatformSection] | None:
    """The model as a `PlatformSection`; None for a plain model of a plug-in."""
    return model if issubclass(model, PlatformSection) else None


def _canonical_keys(raw: Mapping[str, object], model: type[BaseModel]) -> dict[str, object]:
    names = {fold(other): name for other, name in names_marked(model, "oldNames").items()}
    names |= {fold(name): name for name in fields_of(model)}
    return {names.get(fold(key), key): value for key, value in raw.items() if value is not None}


def _judge(section: PlatformSection, path: Path, experiment: Mapping[str, object], source: Source) -> None:
    for name, sentence in section.faults(experiment):
        source.refuse((*path, *steps(name)), sentence)
    for name, sentence in section.warnings(experiment):
        source.warn((*path, *steps(name)), "PLATFORM", sentence)


def _read_all(items: Mapping[Path, object], shared: Settings, source: Source) -> Iterator[Settings]:
    found = [(path, raw, _find(raw, path, source)) for path, raw in items.items()]
    known = [(path, raw, description) for path, raw, description in found if description is not None]
    names = service_names((it.name, _own_name(raw, it.name, path, source)) for path, raw, it in known)
    _refuse_namesakes(names, [path for path, _, _ in known], source)
    for (path, raw, description), name in zip(known, names, strict=True):
        section = _read_platform(raw, description, name, path, shared, source)
        if section is not None:
            yield section


def _own_name(raw: object, platform: str, path: Path, source: Source) -> str:
    """The service's name in the section; empty if it is unset or invalid."""
    assert isinstance(raw, dict)
    given = next((value for key, value in raw.items() if fold(key) == NAME), None)
    if given is None or (
        isinstance(given, str) and re.fullmatch(rf"{re.escape(platform)}(-[1-9][0-9]{{0,5}})?", given)
    ):
        return given or ""
    source.refuse((*path, NAME), f"must be {platform}, or {platform}- and a number, such as {platform}-2")
    return ""


def _refuse_namesakes(names: list[str], paths: list[Path], source: Source) -> None:
    counts = Counter(names)
    for name, path in zip(names, paths, strict=True):
        if counts[name] > 1:
            source.refuse(
                (*path, NAME), f"is {name}, which another section has, too; use different names, or remove them"
            )


def _read_platform(
    raw: object, description: registry.PlatformDescription, service: str, path: Path, shared: Settings, source: Source
) -> Settings | None:
    assert isinstance(raw, dict)
    model = description.config
    for table in description.formats.values() if not source.stored else ():
        for place, names in foreign_names(table.fields).items():
            source.note_foreign_names(("trainingService", *place), names)
    own = {key: value for key, value in raw.items() if fold(key) != NAME}  # the name was read before
    settings = read_model(own, model, path, service, source) | {"platform": description.name}
    # a folder in an image does not inherit the value of a folder on this machine
    inheriting = {name for name, field in fields_of(model).items() if marks_of(field).get("format") != "elsewhere"}
    inherited = {name: value for name, value in shared.items() if name in inheriting}
    section = validate(model, inherited | settings, path, source)
    is_named = any(fold(key) == NAME and value is not None for key, value in raw.items())
    return section | {NAME: service} if section is not None and is_named else section


def _find(raw: object, path: Path, source: Source) -> registry.PlatformDescription | None:
    if not isinstance(raw, dict):
        source.refuse(path, f"must be a mapping such as {{platform: local}}, not {scalars.kind(raw)}")
        return None
    name = next((value for key, value in raw.items() if fold(key) == "platform"), None)
    try:
        return registry.find(_platform_name(name))
    except (InvalidInput, ValueError) as error:
        source.refuse((*path, "platform"), str(error))
        return None


def _platform_name(raw: object) -> str:
    if raw is None:
        raise ValueError(f"is required and not set; add one of: {', '.join(registry.names())}")
    name = scalars.text(raw)
    if name.casefold() == "hybrid":
        raise ValueError("'hybrid' is not a platform. Write a list: trainingService: [{platform: …}, …]")
    return name


SHARED_STORAGE = "sharedStorage"


def read_shared_storage(raw: object, code_directory: object, source: Source) -> dict[str, object] | None:
    """The canonical section `sharedStorage`. None if it is invalid; that is noted in `source`."""
    from nni_manager.shared_storage.section import KINDS

    path: Path = (SHARED_STORAGE,)
    if not isinstance(raw, dict):
        source.refuse(path, f"must be a mapping such as {{storageType: NFS, …}}, not {kind(raw)}")
        return None
    chosen = read_choice(raw, list(KINDS), path, SHARED_STORAGE, source)
    section = chosen and validate(*chosen, path, source)
    if section is not None and not source.stored:
        _check_outside(str(section["localMountPoint"]), str(code_directory), source)
    return section


def _check_outside(mount_point: str, code_directory: str, source: Source) -> None:
    if f"{source.path(mount_point)}/".startswith(f"{code_directory.rstrip('/')}/"):
        sentence = f"is {mount_point}, and must not lie in trialCodeDirectory ({code_directory})"
        relative = f"; relative paths start at {source.directory}"
        source.refuse((SHARED_STORAGE, "localMountPoint"), f"{sentence}{relative}")
