"""Finds a real `nni` further along the import path than the stand-in, and puts it in the stand-in's place."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # `importlib` is slow to import and only checkers need it
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec


#: Folders of stand-ins that have searched already: two of them on one path must not delegate to each other forever.
_looked: set[str] = set()


def use_real_nni(name: str, own_file: str) -> bool:
    """Makes ``sys.modules[name]`` the real package; False if there is none.

    Call it while the stand-in package `name` at `own_file` is being imported. Errors inside the real package are raised
    unchanged: a broken installation must not look like a working one.
    """
    _looked.add(os.path.dirname(os.path.realpath(own_file)))
    spec = _find(name)
    if spec is None or spec.loader is None:
        return False
    from importlib.util import module_from_spec

    module = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return True


def _find(name: str) -> ModuleSpec | None:
    path = [entry for entry in sys.path if os.path.join(os.path.realpath(entry), name) not in _looked]
    for finder in sys.meta_path:  # all of them: an editable installation has a finder instead of a path entry
        spec = finder.find_spec(name, path) if hasattr(finder, "find_spec") else None
        if spec is not None and _is_real(spec):
            return spec
    return None


def _is_real(spec: ModuleSpec) -> bool:
    # A folder that merely is called nni has no location, and some finders do not heed the path.
    if spec.origin is None or not spec.has_location:
        return False
    return os.path.dirname(os.path.realpath(spec.origin)) not in _looked
