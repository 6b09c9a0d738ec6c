"""Names that are not there yet: what the stand-in has is imported on first use, what it has not is refused in words."""

from __future__ import annotations

import sys
from importlib import import_module

#: Parts of the stand-in that most trials never touch.
_MODULES = frozenset(("assessor", "experiment", "parameter_expressions", "runtime", "tuner", "utils"))
_HOMES = {
    "ClassArgsValidator": "nni.utils",
    "NoMoreTrialError": "nni.tuner",
    "dump": "nni.utils",
    "load": "nni.utils",
    "Experiment": "nni.experiment",
}


def attribute(name: str) -> object:
    """An attribute of `nni` that is not imported yet. Raises AttributeError for what only the real package has."""
    if name in _MODULES:
        return import_module("nni." + name)
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(_sentence("nni." + name))


def function(name: str) -> object:
    """An attribute of `nni.utils`. Raises ImportError: ``from nni.utils import x`` drops an AttributeError's text."""
    if name.startswith("__"):
        raise AttributeError(name)
    raise ImportError(_sentence("nni.utils." + name))


def _sentence(name: str) -> str:
    return (
        "{0} is not part of the stand-in that runs here in place of nni; install nni in the environment of this "
        "program to use {0}.".format(name)
    )


class _Finder:
    """Asked last, when no module was found: ``from nni import trace`` and ``import nni.experiment`` end here."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name.startswith("nni."):
            raise ModuleNotFoundError(_sentence(name))


sys.meta_path.append(_Finder)
