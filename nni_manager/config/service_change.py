"""Changes the training services of an existing experiment to those of new sections.

A section changes the service of its name. Fields that the section omits keep their values if they cannot change, and
get the values of a new service if they can.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from nni_manager.config import secrets
from nni_manager.config.dialects import dialect_v2
from nni_manager.config.experiment_file import ParsedConfig, from_canonical
from nni_manager.config.reading.document import fold
from nni_manager.config.reading.source import Source, spell
from nni_manager.config.sections.model_fields import fields_of, marks_of
from nni_manager.domain.errors import InvalidInput
from nni_manager.domain.experiment import ExperimentSpec, Json, PlatformSpec
from nni_manager.domain.service import NAME, service_names
from nni_manager.platform_kit import registry

_FIELD = "trainingService"
#: Fields that may change in every service.
_ALWAYS_CHANGEABLE = frozenset({"trialConcurrency"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceChange:
    """A request to change an experiment's training services."""

    #: One section or a list of them, as in an experiment file; services without a section are removed.
    sections: object
    #: Reference → value, of secrets that the sections refer to.
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: Where relative paths start.
    directory: str = "/"
    #: Whether to stop trials on removed services instead of waiting for them.
    now: bool = False


#: The new spec, or a function of the current spec at the time of the change; None: no change.
ServiceWish = ServiceChange | Callable[[ExperimentSpec], ServiceChange | None]


def read(
    spec: ExperimentSpec, change: ServiceChange, known: Mapping[str, Json], stored: Mapping[str, str]
) -> ParsedConfig:
    """The experiment with its training services changed, and the values of new secrets.

    `known`: sections of removed services, by name; `stored`: values of the existing secrets. Raises InvalidInput,
    ConfigInvalid with all problems.
    """
    values = {**stored, **change.secrets}
    source = Source(directory=os.path.realpath(change.directory), sent_secrets=values)
    given = change.sections if isinstance(change.sections, list) else [change.sections]
    before = {**known, **{platform.service: platform.settings for platform in spec.platforms}}
    names = _names(given)
    filled = [_filled(raw, before.get(name)) for raw, name in zip(given, names, strict=True)]
    raws = filled if isinstance(change.sections, list) else filled[0]
    sections = dialect_v2.read_services(raws, spec.canonical, source)
    for number, (raw, name, section) in enumerate(zip(given, names, sections, strict=True)):
        if name in before:
            place = spell((_FIELD, number) if isinstance(change.sections, list) else (_FIELD,))
            _require_same(raw, name, section, before[name], place)
    changed = replace(from_canonical({**spec.canonical, _FIELD: _named(sections, names)}), warnings=spec.warnings)
    _require_values(changed, {**values, **source.secrets})
    return ParsedConfig(spec=changed, secrets={**change.secrets, **source.secrets})


def changed_services(before: ExperimentSpec, after: ExperimentSpec) -> tuple[PlatformSpec, ...]:
    """The training services that are new or have changed settings."""
    known = {platform.service: platform.settings for platform in before.platforms}
    return tuple(platform for platform in after.platforms if known.get(platform.service) != platform.settings)


def services_to_ask(before: ExperimentSpec, after: ExperimentSpec) -> tuple[PlatformSpec, ...]:
    """The changed services that a preflight checks.

    A service that only drains other machines is skipped, so that you can drain machines of a broken service.
    """
    known = {platform.service: _without_drain(platform.settings) for platform in before.platforms}
    changed = changed_services(before, after)
    return tuple(one for one in changed if known.get(one.service) != _without_drain(one.settings))


def _without_drain(settings: Json) -> Mapping[str, Any]:
    machines = settings.get("machineList")
    if not isinstance(machines, list) or not all(isinstance(machine, Mapping) for machine in machines):
        return settings
    return {**settings, "machineList": [{**machine, "drain": None} for machine in machines]}


def _names(given: list[Any]) -> list[str]:
    """The names of the sections' services. A section that is not a mapping, which is refused later, has any name."""
    folded = [
        {fold(key): value for key, value in reversed(raw.items())} if isinstance(raw, dict) else {} for raw in given
    ]
    return service_names((_platform(values.get("platform")), str(values.get(NAME) or "")) for values in folded)


def _platform(raw: object) -> str:
    try:
        return registry.find(str(raw)).name
    except InvalidInput:
        return str(raw)


def _filled(raw: Any, before: Json | None) -> Any:
    if before is None or not isinstance(raw, dict):
        return raw
    given = {fold(key) for key in raw}
    left = {*_changeable(before), "platform"}
    return {**{key: value for key, value in before.items() if fold(key) not in given and key not in left}, **raw}


def _changeable(section: Json) -> Collection[str]:
    """The fields of a service's section that may change. Secrets may always change."""
    description = registry.find(str(section["platform"]))
    adapter = registry.adapter_of(PlatformSpec(name=description.name, service=description.name, settings=section))
    hidden = {name for name, field in fields_of(description.config).items() if marks_of(field).get("secret")}
    return {*adapter.changeable, *_ALWAYS_CHANGEABLE, *hidden}


def _require_same(raw: Any, name: str, section: Json, before: Json, place: str) -> None:
    """Check that a section changes only fields that may change. Raises InvalidInput."""
    may_change = _changeable(before)
    given = {fold(key) for key in raw}
    for key, value in section.items():
        if key in may_change or key == NAME or fold(key) not in given or value == before.get(key):
            continue
        raise InvalidInput(
            f"{place}.{key}: cannot be changed while {name} exists; {', '.join(sorted(may_change))} can. For other"
            f" settings, add a service with another name, `name: {before['platform']}-N`, and remove this one"
        )


def _named(sections: list[dict[str, object]], names: list[str]) -> object:
    """The section or sections, with explicit names of services where positions would give others."""
    by_position = service_names((str(section["platform"]), "") for section in sections)
    if by_position == names:
        named = [{key: value for key, value in section.items() if key != NAME} for section in sections]
    else:
        named = [{**section, NAME: name} for section, name in zip(sections, names, strict=True)]
    return named if len(named) > 1 else named[0]


def _require_values(spec: ExperimentSpec, values: Mapping[str, str]) -> None:
    """Check that the value of every reference is known. Raises InvalidInput."""
    for platform in spec.platforms:
        for reference in secrets.references([registry.find(platform.name).config], platform.settings):
            if reference not in values:
                raise InvalidInput(
                    f"{_FIELD}: {platform.service} refers to {reference}, whose value is unknown here; send it in"
                    " `secrets`"
                )
