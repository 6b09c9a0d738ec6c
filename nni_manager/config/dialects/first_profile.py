"""Converts the first-format config in the database of NNI up to 2.2 to the canonical form.

It differs from a file of that format: the search space is text, durations are seconds, and the settings of trial and
platform are a list of keys and values, `clusterMetaData`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from nni_manager.config.dialects import dialect_v1, dialect_v2, first_format
from nni_manager.config.dialects.first_format_paths import KINDS
from nni_manager.config.reading.source import Source
from nni_manager.domain.errors import ConfigInvalid

_META = "clusterMetaData"
#: Placeholder for the search space during conversion: a file of the first format names a file.
_SPACE_FILE = "searchSpacePath"
#: Fields of a file's section `trial` that are keys in the config of a local experiment.
_OF_TRIAL = ("command", "codeDir", "gpuNum")


def is_mine(config: Mapping[str, object]) -> bool:
    """Whether a stored config has the first format."""
    return dialect_v1.PLATFORM in config


def canonical(config: Mapping[str, Any], working_directory: str) -> dict[str, Any]:
    """The canonical config. `working_directory`: the parent of the experiment's folder.

    Raises ConfigInvalid, with one problem, if the config cannot be converted.
    """
    source = Source(directory="/", stored=True, elsewhere=True, working_directory=working_directory)
    try:
        values = dialect_v1.convert(_file(config), source).values
        del values["searchSpaceFile"]
        values["searchSpace"] = _search_space(config.get("searchSpace"))
        return dict(dialect_v2.read(values, source).canonical)
    except ConfigInvalid as error:
        raise _refusal(error.problems[0]) from None
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise _refusal(repr(error)) from None


def _refusal(reason: object) -> ConfigInvalid:
    return ConfigInvalid.of(
        f"NNI stored this experiment in its first format, which cannot be converted ({reason}). You can view the"
        " experiment, but not continue it"
    )


def _search_space(given: object) -> object:
    return json.loads(given) if isinstance(given, str) else given or {}


def _file(config: Mapping[str, Any]) -> dict[str, Any]:
    """The file that NNI made the config from. Of fields that 2.x has in both formats, the first format's are kept."""
    known = {*dialect_v1.COMMON, *first_format.LOST, *KINDS, dialect_v1.PLATFORM, "sharedStorage"}
    file = {name: value for name, value in config.items() if name in known and value is not None}
    for noun in KINDS:
        if noun in file:
            file[noun] = _algorithm(file[noun], noun)
    seconds = file.get("maxExecDuration")
    return {**file, **_of_platform(config.get(_META) or []), _SPACE_FILE: "stored"} | (
        {"maxExecDuration": f"{seconds}s"} if isinstance(seconds, int) else {}
    )


def _algorithm(section: Mapping[str, Any], noun: str) -> dict[str, Any]:
    """The section without the fields that NNI added."""
    return {name: value for name, value in section.items() if name in first_format.names(noun) and value is not None}


def _of_platform(pairs: list[dict[str, Any]]) -> dict[str, Any]:
    """The sections of a file: ``trial_config`` is `trial`, and ``machine_list`` `machineList`."""
    sections: dict[str, Any] = {}
    trial: dict[str, Any] = {}
    for pair in pairs:
        key, value = pair["key"], pair["value"]
        if key in _OF_TRIAL:
            trial[key] = value
        else:
            sections["trial" if key == "trial_config" else _camel(key)] = value
    return {**sections, "trial": {**sections.get("trial", {}), **trial}}


def _camel(name: str) -> str:
    return re.sub(r"_(\w)", lambda match: match[1].upper(), name)
