"""The modules that reading a pickle imports."""

from __future__ import annotations

import pickletools
from collections.abc import Iterator

#: cloudpickle's function that imports the module that its argument names.
_IMPORTS = ("cloudpickle.cloudpickle", "subimport")


def modules(content: bytes) -> Iterator[str]:
    """Names of modules, perhaps repeated. `content`: of protocol 4 or newer."""
    texts: list[str | None] = []
    kept: list[str | None] = []
    is_import = False
    for code, argument, _ in pickletools.genops(content):
        if code.name.endswith("UNICODE"):
            texts.append(str(argument))
            if is_import:
                yield str(argument)
            is_import = False
        elif code.name == "MEMOIZE":
            kept.append(texts[-1] if texts else None)
        elif code.name in ("BINGET", "LONG_BINGET") and isinstance(argument, int):
            texts.append(kept[argument])
        elif code.name == "STACK_GLOBAL":
            module, name = texts[-2:]
            if module:
                yield module
            is_import = (module, name) == _IMPORTS
            texts.append(None)
        elif code.name == "REDUCE":
            texts.append(None)
