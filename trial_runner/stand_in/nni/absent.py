"""Lazy attributes: parts of the stand-in are imported on first use; missing parts raise an error with a message."""

from __future__ import annotations

import sys
from importlib import import_module

TYPE_CHECKING = False  # `typing` is slow to import and only checkers need it
if TYPE_CHECKING:
    from typing import Any

#: Parts of the stand-in that most trials never touch.
_MODULES = frozenset(
    "assessor common experiment parameter_expressions recoverable runtime tuner typehint utils version".split()
)
_HOMES = {
    "ClassArgsValidator": "nni.utils",
    "NoMoreTrialError": "nni.tuner",
    "dump": "nni.utils",
    "load": "nni.utils",
    "Experiment": "nni.experiment",
    "dispatcher_env_vars": "nni.runtime.env_vars",
    "enable_global_logging": "nni.runtime.log",
    "silence_stdout": "nni.runtime.log",
}


def attribute(name: str) -> object:
    """An attribute of `nni` that is not imported yet. Raises AttributeError for what only the real package has."""
    if name in _MODULES:
        return import_module("nni." + name)
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(_sentence("nni." + name))


def refuse_missing(module: str) -> Any:
    """The ``__getattr__`` of a module of the stand-in. It raises ImportError: ``from nni.utils import x`` drops an
    AttributeError's text."""

    def refuse(name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        raise ImportError(_sentence("{}.{}".format(module, name)))

    return refuse


def _sentence(name: str) -> str:
    return (
        "{0} is not part of the stand-in that replaces nni here; install nni in the environment of this "
        "program to use {0}.".format(name)
    )


class _Finder:
    """Asked last, when no module was found: ``from nni import trace`` and ``import nni.experiment`` end here."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name.startswith("nni."):
            raise ModuleNotFoundError(_sentence(name))


sys.meta_path.append(_Finder)
