"""The experiment manager: one daemon that owns hyper-parameter experiments.

From a program: `Experiment`, `AsyncExperiment`, `optimize`, the dimensions of `space`, and the errors that these raise;
`__init__.pyi` has their types.

Read in this order: `domain` (the words), `config` (text → experiment), `store` (where state lives), `scheduler` (the
heart), `platform_kit` (what a training service is), `machines`, `shared_storage`, `code_archive`, `kubernetes` and
`web_services` (what adapters are made of), `platforms` (the adapters), `tuners` and `assessors` (what to try and what
to give up), `provenance` (what an experiment is repeated by), `analysis` (answers about trials), `streams` (states as
they change), `api`, `web`, `client`, `programs`, `space` and `cli` (how people reach it), `app` (how it is put
together).

The contracts in `pyproject.toml` rule the imports between them, and `make check` proves those.
"""

from trial_runner.protocol import VERSION

__version__ = VERSION

#: What programs use, by the module that has it.
_MODULES = {
    "AsyncExperiment": "nni_manager.programs.asynchronous",
    "ConfigInvalid": "nni_manager.domain.errors",
    "Conflict": "nni_manager.domain.errors",
    "Experiment": "nni_manager.programs.experiment",
    "ExperimentFailed": "nni_manager.programs.waiting",
    "InvalidInput": "nni_manager.domain.errors",
    "NniManagerError": "nni_manager.domain.errors",
    "NotFound": "nni_manager.domain.errors",
    "Unreachable": "nni_manager.client.connection",
    "optimize": "nni_manager.programs.optimize",
}

_SPACE = "space"

__all__ = ["__version__", _SPACE, *_MODULES]


def __dir__() -> list[str]:
    """All that can be had, imported or not: for completion and `help`."""
    return sorted({*globals(), _SPACE, *_MODULES})


def __getattr__(name: str) -> object:
    """Imported on first use: daemon and command line need none of them."""
    if name not in (_SPACE, *_MODULES):
        raise AttributeError(f"module 'nni_manager' has no attribute {name!r}")
    from importlib import import_module

    if name == _SPACE:
        return import_module("nni_manager.space")
    return getattr(import_module(_MODULES[name]), name)
