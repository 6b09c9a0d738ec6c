"""The secrets of a whole experiment: the references in its spec, and its sections with the values in place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from nni_manager.config import secrets
from nni_manager.domain.errors import InvalidInput
from nni_manager.domain.experiment import ExperimentSpec, Json, PlatformSpec
from nni_manager.platform_kit import registry
from nni_manager.platform_kit.section_model import PlatformSection


def outside(spec: ExperimentSpec) -> tuple[str, ...]:
    """The references to variables and files in an experiment's spec; their values can be replaced."""
    return tuple(filter(secrets.is_reference, known(spec)))


def filled(platform: PlatformSpec, values: Mapping[str, str]) -> dict[str, Any]:
    """The settings of a platform with the secrets' values in place."""
    return secrets.fill([registry.find(platform.name).config], platform.settings, values)


def adapter_config(platform: PlatformSpec, values: Mapping[str, str]) -> PlatformSection:
    """The config of a platform's adapter, with the secrets' values in place. Raises InvalidInput and ValueError."""
    return registry.config_of(replace(platform, settings=filled(platform, values)))


def filled_storage(spec: ExperimentSpec, values: Mapping[str, str]) -> Json | None:
    """The section `sharedStorage` with the secrets' values in place, or None."""
    found = spec.shared_storage
    return None if found is None else secrets.fill(_storage_models(), found, values)


def known(spec: ExperimentSpec, removed: Iterable[PlatformSpec] = ()) -> tuple[str, ...]:
    """All references of an experiment to secrets; `removed`: services that were removed from its config."""
    platforms = (*spec.platforms, *removed)
    found = [one for p in platforms for one in secrets.references([registry.find(p.name).config], p.settings)]
    if spec.shared_storage is not None:
        found += secrets.references(_storage_models(), spec.shared_storage)
    return tuple(dict.fromkeys(found))


def lacking(spec: ExperimentSpec, values: Mapping[str, str], removed: Iterable[PlatformSpec] = ()) -> tuple[str, ...]:
    """The references of an experiment that have no value. NNI's configs hold the values instead."""
    return tuple(one for one in known(spec, removed) if one not in values and secrets.needs_value(one))


def require_known(spec: ExperimentSpec, values: Mapping[str, str], removed: Iterable[PlatformSpec] = ()) -> None:
    """Check secrets that were given for an experiment.

    Raises InvalidInput for a reference that the experiment does not have, or an unusable value.
    """
    references = known(spec, removed)
    for reference, value in values.items():
        if reference not in references:
            listed = ", ".join(filter(secrets.is_reference, references)) or "none"
            raise InvalidInput(f"secrets: this experiment has no reference {reference}; its references: {listed}")
        if not value or "\0" in value:
            raise InvalidInput(f"secrets: the value of {reference} is empty or contains a NUL character")


def _storage_models() -> list[Any]:
    from nni_manager.shared_storage.section import KINDS

    return list(KINDS)
