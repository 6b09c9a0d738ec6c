"""The fields of a config that the store reads; the config is canonical, or NNI's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nni_manager.domain.errors import StoreCorrupt
from nni_manager.domain.objectives import Goals
from nni_manager.domain.service import NAME, service_names, without_name


def read(text: str, database: Path) -> dict[str, Any]:
    """The config in an experiment's database. Raises StoreCorrupt."""
    try:
        config: dict[str, Any] = json.loads(text)
    except ValueError as error:
        sentence = f"the config in the database {database} cannot be read ({error}); restore it from a backup"
        raise StoreCorrupt(sentence) from error
    return config


def platform(config: Mapping[str, Any]) -> str:
    """The name, or several names joined by commas."""
    return ",".join(str(one.get("platform", "")) for one in _sections(config))


def services(config: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Training service → its section without the name field, in config order."""
    sections = _sections(config)
    names = service_names((str(one.get("platform", "")), str(one.get(NAME) or "")) for one in sections)
    return dict(zip(names, map(without_name, sections), strict=True))


def _sections(config: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The sections; NNI 2.x has the platform of its first dialect next to the section."""
    section = config.get("trainingService") or {"platform": config.get("trainingServicePlatform", "")}
    return section if isinstance(section, list) else [section]


def goals(config: Mapping[str, Any]) -> Goals | None:
    """The objectives and constraints; None: a single number, `default`, counts."""
    objectives = config.get("objectives")
    return Goals.of(objectives, config.get("constraints") or {}) if objectives else None
