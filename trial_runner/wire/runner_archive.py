"""Compiled modules and the stand-in in the runner's archive.

Containers do not keep what Python compiles, which is half of the start. The archive contains the modules compiled by
one version of Python; other versions compile the sources.
"""

import marshal
import os
import sys
from importlib.machinery import ModuleSpec
from importlib.util import MAGIC_NUMBER
from types import CodeType, ModuleType
from typing import Any, Dict, Optional

#: Code by the source's name, only for this version of Python.
MODULES_FILE = "modules-{}".format(MAGIC_NUMBER.hex())
#: Text by the name in the stand-in's folder: listing an archive would import much.
STAND_IN_FILE = "stand-in.json"


def use_modules() -> None:
    """Makes imports use them; no effect if there are none for this Python. Only in the archive."""
    loader = globals()["__loader__"]
    try:
        import zlib

        packed = loader.get_data(os.path.join(loader.archive, MODULES_FILE))
    except (ImportError, OSError):
        return
    modules = marshal.loads(zlib.decompress(packed))  # noqa: S302 - of our own making, as the sources
    sys.meta_path.insert(0, _Finder(loader, modules))


class _Finder:
    """`modules`: code by the source's name in the archive; `loader`: of the sources."""

    def __init__(self, loader: Any, modules: Dict[str, CodeType]) -> None:
        self._loader = loader
        self._modules = modules

    def find_spec(self, name: str, path: object = None, target: object = None) -> Optional[ModuleSpec]:
        module = name.replace(".", "/")
        for file in (module + ".py", module + "/__init__.py"):
            if file in self._modules:
                origin = os.path.join(self._loader.archive, file)
                loader: Any = self
                is_package = file != module + ".py"
                spec = ModuleSpec(name, loader, loader_state=file, origin=origin, is_package=is_package)
                spec.has_location = True
                if spec.submodule_search_locations is not None:
                    spec.submodule_search_locations.append(os.path.dirname(origin))
                return spec
        return None

    def create_module(self, spec: ModuleSpec) -> None:
        """An ordinary module."""

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        exec(self._modules[module.__spec__.loader_state], module.__dict__)  # noqa: S102 - what an import does

    def get_source(self, name: str) -> Any:
        """The source for tracebacks."""
        return self._loader.get_source(name)
