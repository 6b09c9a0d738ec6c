"""Finds literal secrets outside secret fields: in commands and pod templates.

Such a value is stored in the config, in the experiment's database and in the arguments of its processes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from nni_manager.config.reading.document import Path
from nni_manager.config.reading.source import Source
from nni_manager.config.secrets import MASK
from nni_manager.platform_kit.secret_names import is_doubtful, is_secret
from nni_manager.platform_kit.secret_values import holds_stars, is_secret_option, masked_command

_COMMAND = "trialCommand"
_TEMPLATE = "podTemplate"
_WRITTEN = (
    "contains a value that looks like a secret. It is stored in the experiment's database and visible to every user"
    " that may list the trial's processes: "
)
_IN_TEMPLATE = "refer to a Secret of the cluster by `valueFrom: {secretKeyRef: …}`"
_IN_COMMAND = (
    "let the trial read it from a file, such as `--token $(cat ~/.token)`, or from an environment variable:"
    " on this machine one of yours, in a pod one of `podTemplate` with `valueFrom: {secretKeyRef: …}`"
)
_MASKED = "contains a value that was masked when the config was shown; write the real value, or let the trial read it"


def judge_literals(command: object, sections: Sequence[Mapping[str, Any]], source: Source) -> None:
    """Note a warning for each literal secret, and a problem for each masked value.

    `command`: the top level's, which sections inherit. Stored configs are skipped.
    """
    if source.stored:
        return
    _judge((_COMMAND,), command, source)
    for number, section in enumerate(sections):
        path: Path = ("trainingService", number) if len(sections) > 1 else ("trainingService",)
        own = {name: value for name, value in section.items() if (name, value) != (_COMMAND, command)}
        _judge(path, own, source)


def _judge(path: Path, value: object, source: Source) -> None:
    for place, text in _texts(path, value):
        if text == MASK or holds_stars(text):
            source.refuse(place, _MASKED)
        else:
            source.warn(place, "LITERAL_SECRET", _WRITTEN + (_IN_TEMPLATE if _TEMPLATE in place else _IN_COMMAND))


def _texts(path: Path, value: object) -> Iterator[tuple[Path, str]]:
    """(place, text) of each text that may contain a secret."""
    if isinstance(value, Mapping):
        if value.keys() == {"name", "value"} and _is_variable(value["name"], value["value"]):
            yield (*path, "value"), value["value"]
            return
        for name, inner in value.items():
            yield from _texts((*path, name), inner)
    elif isinstance(value, list):
        yield from _of_list(path, value)
    elif isinstance(value, str) and (masked_command(value) != value or holds_stars(value)):
        yield path, value


def _of_list(path: Path, values: list[Any]) -> Iterator[tuple[Path, str]]:
    for number, inner in enumerate(values):
        yield from _texts((*path, number), inner)
    for number, (option, inner) in enumerate(pairwise(values), 1):
        if isinstance(option, str) and isinstance(inner, str) and is_secret_option(option) and inner[:1] not in "-$":
            yield (*path, number), inner


def _is_variable(name: object, value: object) -> bool:
    if not isinstance(value, str) or not value or value.startswith("$("):
        return False
    return is_secret(str(name)) and (str(name).isupper() or not is_doubtful(str(name)))
