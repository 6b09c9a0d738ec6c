"""The arguments of NNI's launchers for the manager."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nni_manager.domain.errors import InvalidInput

ACTIONS = ("create", "resume", "view")
#: Log levels at which NNI counts as debugging.
_DEBUG = ("debug", "trace")


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    port: int
    experiment_id: str
    action: str
    #: Absolute parent of the experiment's folder.
    directory: str
    #: Prefix of every path, without outer slashes.
    url_prefix: str = ""
    #: The Python that runs the launcher, and a user's tuner.
    python: str = ""
    is_debug: bool = False
    #: Address of a tuner inside the launcher's own process; NNI's searches for architectures have one.
    tuner_channel: str = ""


def read(words: Sequence[str]) -> Arguments:
    """The arguments ``--name value``, after words for the program that NNI expects. Raises InvalidInput."""
    given = _options(words)
    missing = [name for name in ("port", "experiment-id", "action", "experiments-directory") if not given.get(name)]
    if missing:
        raise InvalidInput(f"--{missing[0]}: is missing; this program is only for NNI's launchers")
    if given["action"] not in ACTIONS:
        raise InvalidInput(f"--action {given['action']}: must be one of {', '.join(ACTIONS)}")
    return Arguments(
        port=_port(given["port"]),
        experiment_id=given["experiment-id"],
        action=given["action"],
        directory=given["experiments-directory"],
        url_prefix=given.get("url-prefix", "").strip("/"),
        python=given.get("python-interpreter", ""),
        is_debug=given.get("log-level") in _DEBUG,
        tuner_channel=given.get("tuner-command-channel", ""),
    )


def _options(words: Sequence[str]) -> dict[str, str]:
    begin = next((index for index, word in enumerate(words) if word == "--port"), len(words))
    named = words[begin:]
    return {name.removeprefix("--"): value for name, value in zip(named[::2], named[1::2], strict=False)}


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise InvalidInput(f"--port {text}: must be a number from 1 to 65535")
    return int(text)


#: Field → the one that NNI filled from it.
_READ_ALREADY = {"searchSpaceFile": "searchSpace"}


def as_written(config: dict[str, Any]) -> dict[str, Any]:
    """The posted config without NNI's additions: unset fields, content of files, and copies in training services."""
    own = {name: value for name, value in config.items() if value is not None}
    for file, content in _READ_ALREADY.items():
        if content in own:
            own.pop(file, None)
    if "trainingService" in own:
        own["trainingService"] = _services(own["trainingService"], own)
    return own


def _services(found: Any, config: dict[str, Any]) -> Any:
    if isinstance(found, list):
        return [_services(one, config) for one in found]
    return {name: value for name, value in found.items() if value is not None and config.get(name, _NOTHING) != value}


_NOTHING = object()
