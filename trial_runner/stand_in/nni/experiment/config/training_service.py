"""The base of the classes of training services."""

from __future__ import annotations

from nni.experiment.config.base import ConfigBase

TYPE_CHECKING = False  # `typing` is slow to import and only checkers need it
if TYPE_CHECKING:
    from typing import Any, List

__all__ = ["TrainingServiceConfig", "section"]

#: Fields that a service has from the top level where they are not set.
_INHERITED = "trial_command trial_code_directory trial_gpu_number nni_manager_ip debug"


class TrainingServiceConfig(ConfigBase):
    """Where trials run."""

    _names = "platform " + _INHERITED
    _paths = "trial_code_directory"
    _required = "platform trial_command trial_code_directory debug"

    def _canonicalize(self, parents: List[ConfigBase]) -> None:
        for name in _INHERITED.split() if parents else ():
            if getattr(self, name) is None:
                self.__dict__[name] = getattr(parents[0], name)
        super()._canonicalize(parents)
        self._refine()

    def _refine(self) -> None:
        """Changes what the canonical form of this service has differently."""


def section(
    name: str, text: str, base: type, names: str, *, parts: Any = None, shown: Any = None, more: Any = None, **set_: Any
) -> type:
    """A class of a section. `text`: what it is of; `names`: its fields; `shown`: NNI's defaults, which are not sent;
    `more`: paths, required fields and methods; other keywords: fields that are set from the start."""
    names = names + " " + _INHERITED if issubclass(base, TrainingServiceConfig) else names
    own = {
        "__doc__": text,
        "__module__": "nni.experiment.config",
        "_names": names,
        "_defaults": set_,
        "_parts": parts or {},
        **(more or {}),
    }
    for field in ("_paths", "_required"):
        own[field] = "{} {}".format(getattr(base, field), own.get(field, ""))
    return type(name, (base,), {**own, **(shown or {})})
