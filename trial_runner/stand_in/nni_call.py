"""The command of a trial that calls a function: ``python3 -m nni_call WHAT [PROGRAM]``.

`WHAT` is ``module:function``, or the path of a file that `cloudpickle` or `nni_manager.programs.plain_function` wrote,
with ``X.Y`` of its Python after a colon.
`PROGRAM` is the path of a JSON file about the program that defined the function, where that runs on this machine: the
call has its working directory, its path of modules and its ``__main__``, so that process pools find its functions.
The function gets the trial's parameters. What it yields are intermediate results; what it returns is the final result,
or where it returns nothing, the last that it yielded.
"""

from __future__ import annotations

import os
import sys
from types import GeneratorType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict

_PICKLED, _PLAIN = ".pickle", ".marshal"
#: As `trial_runner.protocol` has it, which need not be here: the manager knows this end by it.
_OTHER_PYTHON = "nni_call: the function was sent by Python "


#: Set for all that a call starts: a program without a guard that is imported again must not search again.
TRIAL_VARIABLE = "NNI_CALL_TRIAL"


def main() -> None:
    _look_into_code_first()
    os.environ[TRIAL_VARIABLE] = "1"
    program = _program(sys.argv[2]) if len(sys.argv) > 2 else None
    try:
        function = _find(sys.argv[1])
        if program:
            _publish(function)
            os.chdir(program["directory"])
        result = _call(function)
    except (ModuleNotFoundError, FileNotFoundError) as error:
        if not program:
            _advise(error)
        raise
    if result is None:
        sys.exit("the function returned nothing: it must return its result, or yield it")
    import nni

    nni.report_final_result(_plain(result))


def _call(function: Callable[[Any], Any]) -> Any:
    import nni

    result = function(nni.get_next_parameter())
    return _follow(result, nni.report_intermediate_result) if isinstance(result, GeneratorType) else result


def _program(file: str) -> Dict[str, Any]:
    """What the file says of the program, whose path of modules and ``__main__`` are taken over."""
    import json

    with open(file, encoding="utf-8") as content:
        found = json.load(content)
    sys.path[:] = found["path"] + [entry for entry in sys.path if entry not in found["path"]]
    module = type(sys)("__main__")
    if found["module"]:
        from importlib.machinery import ModuleSpec

        module.__spec__ = ModuleSpec(found["module"], None)
    if found["file"]:
        module.__file__ = found["file"]
    sys.modules["nni_call"] = sys.modules["__main__"]  # its globals live on
    sys.modules["__main__"] = module
    return dict(found)


def _publish(function: Any) -> None:
    """Puts what the program defines, and the function uses, where it is looked up by name."""
    inner = (function, getattr(function, "func", None), vars(type(function)).get("__call__"))
    for known in (getattr(one, "__globals__", {}) for one in inner):
        if known.get("__name__") == "__main__":
            own = {name: value for name, value in known.items() if not name.startswith("__")}
            vars(sys.modules["__main__"]).update(own)


def _advise(error: Any) -> None:
    """Adds advice to an error about a module or file that is missing here."""
    if isinstance(error, ModuleNotFoundError):
        if error.name:
            error.msg += "; call optimize with code_directory, a folder that holds {}".format(error.name.split(".")[0])
    elif error.filename and not os.path.isabs(os.fspath(error.filename)):
        error.strerror = "{}; call optimize with code_directory, a folder that holds this file".format(error.strerror)


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
    """Ends the program if this Python cannot read what another version has written."""
    own = "{}.{}".format(*sys.version_info)
    if own != version:
        sys.exit(
            "{}{}, and this is Python {} ({}): a function of a notebook or of the program itself runs on the same "
            "version only; put it into a module, or use Python {} here".format(
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
