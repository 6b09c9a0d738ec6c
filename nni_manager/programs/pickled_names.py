"""The modules that reading a pickle imports."""

from __future__ import annotations

import pickletools
from collections.abc import Iterator

#: cloudpickle's function that imports the module that its argument names.
_IMPORTS = ("cloudpickle.cloudpickle", "subimport")


def modules(content: bytes) -> Iterator[str]:
    """Names of modules, perhaps repeated. `content`: of protocol 4 or newer."""
    #: What was kept for later: texts, and None for all else.
    kept: list[str | None] = []
    #: The two values that were pushed last, as in `kept`.
    before = top = None
    is_import = False
    for code, argument, _ in pickletools.genops(content):
        if code.name == "MEMOIZE":
            kept.append(top)
            continue
        if code.name == "STACK_GLOBAL":
            if before:
                yield before
            is_import, before, top = (before, top) == _IMPORTS, None, None
            continue
        before, top = top, _text(code.name, argument, kept)
        if is_import and top:
            yield top
            is_import = False


def _text(code: str, argument: object, kept: list[str | None]) -> str | None:
    """The text that an operation pushes; None: another value."""
    if code.endswith("UNICODE"):
        return str(argument)
    return kept[argument] if code.endswith("BINGET") and isinstance(argument, int) else None
