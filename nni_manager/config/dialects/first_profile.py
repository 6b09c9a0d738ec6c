"""The config of an experiment as NNI's database has it in the first format, until 2.2 → the canonical one.

It is no file of that format: the search space is text, durations are seconds, and what a file says of the trial and its
platform is a list of keys and values, `clusterMetaData`.
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
#: Stands for the search space while the rest is converted: a file of the first format names a file.
_SPACE_FILE = "searchSpacePath"
#: Fields of the section `trial` of a file, which a local experiment has as keys.
_OF_TRIAL = ("command", "codeDir", "gpuNum")


def is_mine(config: Mapping[str, object]) -> bool:
    """Whether a stored config is one of the first format."""
    return dialect_v1.PLATFORM in config


def canonical(config: Mapping[str, Any], working_directory: str) -> dict[str, Any]:
    """The canonical config. `working_directory`: where the experiment's folder is.

    Raises ConfigInvalid, with one problem, for one that cannot be converted.
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
        f"NNI stored this experiment in its first format, and it cannot be converted ({reason}): it can be viewed, but"
        " not go on"
    )


def _search_space(given: object) -> object:
    return json.loads(given) if isinstance(given, str) else given or {}


def _file(config: Mapping[str, Any]) -> dict[str, Any]:
    """The file that NNI made the config of. 2.x has some fields in both formats; those of the first are kept."""
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
    """The section without what NNI added to it."""
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
