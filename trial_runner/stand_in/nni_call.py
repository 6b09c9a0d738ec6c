"""The command of a trial that calls a function: ``python3 -m nni_call WHAT``.

`WHAT` is ``module:function``, or the path of a file that `cloudpickle` or `nni_manager.programs.plain_function` wrote,
with ``X.Y`` of its Python after a colon.
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

_PICKLED, _PLAIN = ".pickle", ".marshal"
#: As `trial_runner.protocol` has it, which need not be here: the manager knows this end by it.
_OTHER_PYTHON = "nni_call: the function was sent by Python "


def main() -> None:
    _look_into_code_first()
    function = _find(sys.argv[1])
    import nni

    result = function(nni.get_next_parameter())
    if isinstance(result, GeneratorType):
        result = _follow(result, nni.report_intermediate_result)
    if result is None:
        sys.exit("the function returned nothing: it must return its result, or yield it")
    nni.report_final_result(_plain(result))


def _look_into_code_first() -> None:
    """Puts the code directory in front of the path, in place of this file's own folder where Python has put that there:
    with ``PYTHONSAFEPATH`` or ``-P`` it does not, and the first folder is one of ``PYTHONPATH``."""
    is_own = not getattr(sys.flags, "safe_path", False)
    sys.path[: 1 if is_own else 0] = [os.getcwd()]


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
    if not name.endswith((_PICKLED, _PLAIN)):
        return _imported(name, rest)
    _require_version(rest)
    return _unpickled(name) if name.endswith(_PICKLED) else _made(name)


def _imported(module: str, name: str) -> Any:
    from importlib import import_module

    found = import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return getattr(found, "__wrapped_function__", found)


def _require_version(version: str) -> None:
    """Ends the program where this Python cannot read what one of another version has written."""
    own = "{}.{}".format(*sys.version_info)
    if own != version:
        sys.exit(
            "{}{}, and this is Python {} ({}): a function of a notebook or of the program itself runs on the same "
            "version only; put it into a module, or have Python {} here".format(
                _OTHER_PYTHON, version, own, sys.executable, version
            )
        )


def _unpickled(file: str) -> Any:
    import pickle

    with open(file, "rb") as content:
        return pickle.load(content)  # noqa: S301 - written by the user's own program


def _made(file: str) -> Any:
    """The function that `plain_function` wrote: all its functions first, as they may name each other."""
    import marshal

    with open(file, "rb") as content:
        entry, imports, spaces, contents, functions = marshal.load(content)  # noqa: S302 - as above
    for name in imports:
        __import__(name)
    cells = [_new_cell() for _ in contents]
    known = [dict.fromkeys(space) for space in spaces]
    made = [
        type(main)(code, known[space], name, None, tuple(cells[number] for number in own) or None)
        for code, space, name, _, _, own in functions
    ]
    for number, (_, _, _, defaults, keywords, _) in enumerate(functions):
        made[number].__defaults__ = defaults and tuple(_value(one, made) for one in defaults)
        made[number].__kwdefaults__ = keywords and {name: _value(one, made) for name, one in keywords.items()}
    for number, content in enumerate(contents):
        cells[number].cell_contents = _value(content, made)
    for number, values in enumerate(spaces):
        known[number].update((name, _value(one, made)) for name, one in values.items())
    return made[entry]


def _new_cell() -> Any:
    content = None
    return (lambda: content).__closure__[0]


def _value(written: Any, made: Any) -> Any:
    kind, first = written[:2]
    if kind == "function":
        return made[first]
    if kind == "value":
        return first
    found = sys.modules[first]
    for part in written[2].split(".") if kind == "name" else ():
        found = getattr(found, part)
    return found


if __name__ == "__main__":
    main()
