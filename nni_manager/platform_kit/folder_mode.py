"""The mode of an experiment's folder on storage, as sections of the config have it."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator

from nni_manager.platform_kit.section_model import marked

#: Only the manager writes into the experiment's folder itself: attempts have folders of their own.
_Modes = Literal["0700", "0710", "0711", "0750", "0755"]


def _spelled(mode: object) -> object:
    """The mode as text: YAML reads 0711 as decimal 711 or as octal, by its version."""
    if type(mode) is not int:
        return mode
    found = f"{mode:04d}"
    return found if found in get_args(_Modes) else f"{mode:04o}"


Mode = Annotated[_Modes, BeforeValidator(_spelled)]
#: None: the platform's usual mode.
OptionalMode = Annotated[_Modes | None, BeforeValidator(_spelled)]


def of_containers() -> Any:
    """The field `mode` of a section that runs containers."""
    return marked(
        "Mode of the experiment's folder there. Default: `0711`, as containers have users of their own; `0700` where "
        "theirs is the manager's, or root, and the server takes root for root.",
        default=None,
    )


def number(mode: object) -> int:
    """The mode as a number; without one, 0711."""
    return int(str(mode or "0711"), 8)
