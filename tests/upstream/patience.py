"""Longer timeout for NNI's launcher, which waits three seconds for its manager; a busy machine needs more."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType

_LAUNCHER = "nni.experiment.launcher"
#: Tries, a second apart.
_TRIES = 60


def give_patience() -> None:
    """Patch the launcher when a program imports it: an earlier import would use this process's home folder."""
    sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != _LAUNCHER:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.origin is not None:
            spec.loader = _Loader(name, spec.origin)
        return spec


class _Loader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        *_, without_prefix = module._check_rest_server.__defaults__
        module._check_rest_server.__defaults__ = (_TRIES, without_prefix)
