"""A function and everything that a trial needs to call it, in a folder that is sent."""

from __future__ import annotations

import inspect
import json
import os
import pickletools
import shutil
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from nni_manager import code_archive
from nni_manager.domain.errors import InvalidInput
from nni_manager.programs import plain_function

#: By cloudpickle, and by `plain_function`; and what is known of the program.
_PICKLED, _PLAIN, _PROGRAM = "function.pickle", "function.marshal", "program.json"
_VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SentFunction:
    #: What ``python3 -m nni_call`` gets.
    what: str
    #: The folder that is sent.
    folder: Path
    #: The only version of Python that can read it, ``3.11``; empty: any.
    python_version: str = ""
    #: Additional argument on this machine: the file that describes the program, or empty.
    program: str = ""


def prepare(
    function: Callable[[Any], Any],
    empty: Path,
    code_directory: str | os.PathLike[str] | None,
    *,
    is_sent_away: bool = True,
) -> SentFunction:
    """The function, by reference if a module defines it, else by `plain_function`, else by cloudpickle.

    `empty`: an empty folder that exists until the function was sent. `code_directory`: a folder that trials need, too.
    `is_sent_away`: some trials run elsewhere, so everything that the function needs is sent. On this machine, a
    function that is not sent by reference runs in that folder, else in the program's working directory, with the
    program's modules. Raises InvalidInput for a function that cannot be called with one argument, or cannot be sent.
    """
    _require_one_argument(function)
    given = None if code_directory is None else Path(os.path.realpath(os.path.expanduser(code_directory)))
    if given is not None and not given.is_dir():
        raise InvalidInput(f"code_directory: cannot find folder {given}")
    if reference := _reference(function):
        folder = _folder(function.__module__, given)
        if folder is not None:
            with _named_as_written():
                code_archive.require_small(folder)
        return SentFunction(what=reference, folder=folder or empty)
    if given is not None and is_sent_away:
        with _named_as_written():
            code_archive.copy(given, empty)
    content = plain_function.dumps(function, lambda name: _is_there(name, given, is_sent_away=is_sent_away))
    name = _PICKLED if content is None else _PLAIN
    if content is None:
        content = _pickled(function, empty, given, is_sent_away=is_sent_away)
    (empty / name).write_bytes(content)
    (empty / _PROGRAM).write_text(json.dumps(_described_program(given)), encoding="utf-8")
    return SentFunction(what=f"{name}:{_VERSION}", folder=empty, python_version=_VERSION, program=_PROGRAM)


def _require_one_argument(function: Any) -> None:
    """Raise InvalidInput for an object that a trial cannot call with its parameters to get a result."""
    if not callable(function):
        raise InvalidInput(f"function: {function!r:.100} cannot be called")
    name = getattr(function, "__name__", "it")
    if inspect.isclass(function):
        raise InvalidInput(f"function: {name} is a class; give a function that takes the parameters")
    inner = getattr(function, "func", function)
    if any(kind(one) for kind in _AWAITED for one in (inner, vars(type(inner)).get("__call__"))):
        raise InvalidInput(f"function: {name} is asynchronous; give a function that calls asyncio.run")
    try:
        inspect.signature(function).bind({})
    except TypeError as error:
        raise InvalidInput(
            f"function: {name} must take one argument, the parameters ({error}); bind others with functools.partial"
        ) from None
    except ValueError:  # a function in C that does not say what it takes
        pass


_AWAITED = (inspect.iscoroutinefunction, inspect.isasyncgenfunction)


@contextmanager
def _named_as_written() -> Iterator[None]:
    """Name the argument, not the field of an experiment file, in errors about its folder."""
    try:
        yield
    except InvalidInput as error:
        raise InvalidInput(str(error).replace("trialCodeDirectory:", "code_directory:", 1)) from None


def _described_program(given: Path | None) -> dict[str, Any]:
    """This program for `nni_call`: working directory, module path, and the file or module of ``__main__``."""
    main = sys.modules["__main__"]
    file, spec = getattr(main, "__file__", None), getattr(main, "__spec__", None)
    path = [os.path.abspath(entry) for entry in sys.path]
    return {
        "directory": str(given or Path.cwd()),
        "path": [str(given), *path] if given is not None else path,
        "file": os.path.abspath(file) if file and os.path.exists(file) else "",
        "module": spec.name if spec is not None else "",
    }


def _reference(function: Any) -> str:
    """``module:name`` of an importable function, or empty."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    if not module or module == "__main__" or not name or "<" in name or getattr(function, "__self__", None) is not None:
        return ""
    found = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return f"{module}:{name}" if found is function and _source(module) else ""


def _folder(module: str, given: Path | None) -> Path | None:
    """The folder that makes the module importable; None if it is installed. Raises InvalidInput."""
    source = _source(module)
    if is_installed(source):
        return given
    root = source.parents[len(module.split(".")) - (source.name != "__init__.py")]
    if given is not None and given != root:
        raise InvalidInput(
            f"code_directory: {given} is not {root}, from which this program imports {module}; remove this argument,"
            " or give that folder"
        )
    return root


def _source(module: str) -> Path:
    """The file of a module, or an empty path."""
    return Path(os.path.realpath(file)) if (file := getattr(sys.modules.get(module), "__file__", None)) else Path()


def is_installed(file: Path) -> bool:
    """Whether a file belongs to Python or to an installed package."""
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    return any(file.is_relative_to(os.path.realpath(sysconfig.get_path(name))) for name in names)


def _is_there(module: str, given: Path | None, *, is_sent_away: bool) -> bool:
    """Whether a trial finds a module: it is installed, in the sent folder, or the trial runs on this machine."""
    if not is_sent_away:
        return module != "__main__"
    top = module.partition(".")[0]
    source = _source(top)
    if source == Path():
        return top in sys.builtin_module_names
    return is_installed(source) or (given is not None and source.is_relative_to(given))


def _pickled(function: Callable[[Any], Any], folder: Path, given: Path | None, *, is_sent_away: bool) -> bytes:
    """The function in cloudpickle's format, also written to the folder. Raises InvalidInput."""
    cloudpickle = _cloudpickle()
    try:
        content: bytes = cloudpickle.dumps(function)
    except Exception as error:  # any exception of the user's objects
        raise InvalidInput(
            f"function: cannot be sent ({type(error).__name__}: {error}); it may use only objects that can be pickled:"
            " open files, locks and connections inside it"
        ) from None
    if is_sent_away:
        _require_modules(content, given)
    shutil.copytree(Path(cloudpickle.__file__).parent, folder / "cloudpickle", dirs_exist_ok=True)
    return content


def _cloudpickle() -> Any:
    if find_spec("cloudpickle") is None:
        raise InvalidInput(
            "function: belongs to no module that a trial could import, so it needs cloudpickle; install it with `pip "
            "install nni-manager[programs]`, or put the function into a module"
        )
    import cloudpickle

    return cloudpickle


def _require_modules(content: bytes, given: Path | None) -> None:
    """Raise InvalidInput for a module that the function imports but that is not sent."""
    for name in sorted({module.partition(".")[0] for module in imported_modules(content)}):
        source = _source(name)
        if source == Path() or is_installed(source) or (given is not None and source.is_relative_to(given)):
            continue
        root = source.parent.parent if source.name == "__init__.py" else source.parent
        raise InvalidInput(f"function: uses module {name}, which is not sent; give code_directory={str(root)!r}")


#: cloudpickle's function that imports a module by name.
_IMPORTS = ("cloudpickle.cloudpickle", "subimport")


def imported_modules(content: bytes) -> Iterator[str]:
    """Names of the modules that a pickle imports, possibly repeated. `content`: of protocol 4 or newer."""
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
        before, top = top, _pushed_text(code.name, argument, kept)
        if is_import and top:
            yield top
            is_import = False


def _pushed_text(code: str, argument: object, kept: list[str | None]) -> str | None:
    """The text that an operation pushes; None: another value."""
    if code.endswith("UNICODE"):
        return str(argument)
    return kept[argument] if code.endswith("BINGET") and isinstance(argument, int) else None
