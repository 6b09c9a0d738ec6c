"""The experiment manager: one daemon that owns hyper-parameter experiments.

From a program: `Experiment`, `AsyncExperiment`, `optimize`, `ExperimentFailed`.

Read in this order: `domain` (the words), `config` (text → experiment), `store` (where state lives), `scheduler` (the
heart), `platform_kit` (what a training service is), `machines`, `shared_storage`, `code_archive`, `kubernetes` and
`web_services` (what adapters are made of), `platforms` (the adapters),
`tuners` and `assessors` (what to try and what to give up),
`api`, `web`, `client`, `programs` and `cli` (how people reach it), `app` (how it is put together).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trial_runner.protocol import VERSION

if TYPE_CHECKING:
    from nni_manager.programs.asynchronous import AsyncExperiment
    from nni_manager.programs.experiment import Experiment, ExperimentFailed
    from nni_manager.programs.optimize import optimize

__version__ = VERSION
__all__ = ["AsyncExperiment", "Experiment", "ExperimentFailed", "__version__", "optimize"]

_MODULES = {
    "AsyncExperiment": "nni_manager.programs.asynchronous",
    "Experiment": "nni_manager.programs.experiment",
    "ExperimentFailed": "nni_manager.programs.experiment",
    "optimize": "nni_manager.programs.optimize",
}


def __getattr__(name: str) -> object:
    """The names for programs, imported on first use: the daemon and the command line need none of them."""
    if name not in _MODULES:
        raise AttributeError(f"module 'nni_manager' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_MODULES[name]), name)
