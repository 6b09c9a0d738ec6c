"""The command of a trial that calls a function: ``python3 -m nni_call WHAT``.

`WHAT` is ``module:function``, or the path of a file that `cloudpickle` wrote, with ``X.Y`` of its Python after a colon.
The function gets the trial's parameters. What it yields are intermediate results; what it returns is the final result,
or where it returns nothing, the last that it yielded.
"""

from __future__ import annotations

import os
import sys
from types import GeneratorType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

_PICKLED = ".pickle"


def main() -> None:
    sys.path.insert(0, os.getcwd())
    function = _find(sys.argv[1])
    import nni

    result = function(nni.get_next_parameter())
    if isinstance(result, GeneratorType):
        result = _follow(result, nni.report_intermediate_result)
    if result is None:
        sys.exit("the function returned nothing: it must return its result, or yield it")
    nni.report_final_result(_plain(result))


def _follow(results: Any, report: Callable[[object], None]) -> Any:
    """The final result of a generator."""
    last = None
    while True:
        try:
            last = next(results)
        except StopIteration as end:
            return last if end.value is None else end.value
        report(_plain(last))


def _plain(value: Any) -> Any:
    """The value with numbers of numpy and the like as Python's own."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    return value.item() if hasattr(value, "item") and not getattr(value, "shape", ()) else value


def _find(what: str) -> Callable[[Any], Any]:
    name, _, rest = what.rpartition(":")
    return _unpickled(name, rest) if name.endswith(_PICKLED) else _imported(name, rest)


def _imported(module: str, name: str) -> Any:
    from importlib import import_module

    found = import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return getattr(found, "__wrapped_function__", found)


def _unpickled(file: str, version: str) -> Any:
    """The function in a file. Ends the program where this Python cannot read it."""
    own = "{}.{}".format(*sys.version_info)
    if own != version:
        sys.exit(
            "the function was sent by Python {}, and this is Python {} ({}): a function of a notebook or of the "
            "program itself runs on the same version only; put it into a module, or install Python {} here".format(
                version, own, sys.executable, version
            )
        )
    import pickle

    with open(file, "rb") as content:
        return pickle.load(content)  # noqa: S301 - written by the user's own program


if __name__ == "__main__":
    main()
