"""A function and what a trial needs to call it, in a folder that is sent."""

from __future__ import annotations

import os
import pickletools
import shutil
import sys
import sysconfig
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from nni_manager.domain.errors import InvalidInput
from nni_manager.programs import plain_function

#: By cloudpickle, and by `plain_function`.
_PICKLED, _PLAIN = "function.pickle", "function.marshal"
_VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SentFunction:
    #: What ``python3 -m nni_call`` gets.
    what: str
    #: The folder that is sent.
    folder: Path
    #: The only version of Python that reads it, ``3.11``; empty: every one does.
    python_version: str = ""


def prepare(function: Callable[[Any], Any], empty: Path, code_directory: str | os.PathLike[str] | None) -> SentFunction:
    """The function by reference where a module holds it, else as `plain_function` writes it, else by cloudpickle.

    `empty`: an empty folder that lasts until the function was sent. `code_directory`: a folder that is sent, too.
    Raises InvalidInput for a function that cannot be sent.
    """
    if not callable(function):
        raise InvalidInput(f"function: {function!r:.100} cannot be called")
    given = None if code_directory is None else Path(os.path.realpath(os.path.expanduser(code_directory)))
    if given is not None and not given.is_dir():
        raise InvalidInput(f"code_directory: there is no folder {given}")
    if reference := _reference(function):
        return SentFunction(what=reference, folder=_folder(function.__module__, given) or empty)
    plain = plain_function.dumps(function, lambda name: _is_there(name, given))
    return _pickled(function, empty, given) if plain is None else _plain(plain, empty, given)


def _reference(function: Any) -> str:
    """``module:name`` of a function that can be imported; empty: it cannot."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    if not module or module == "__main__" or not name or "<" in name or getattr(function, "__self__", None) is not None:
        return ""
    found = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return f"{module}:{name}" if found is function and _source(module) else ""


def _folder(module: str, given: Path | None) -> Path | None:
    """The folder that makes the module importable; None: it is installed. Raises InvalidInput."""
    source = _source(module)
    if is_installed(source):
        return given
    root = source.parents[len(module.split(".")) - (source.name != "__init__.py")]
    if given is not None and given != root:
        raise InvalidInput(
            f"code_directory: {given} is not {root}, from where this program imports {module}; leave it out, or give "
            "that folder"
        )
    return root


def _source(module: str) -> Path:
    """The file of a module; an empty path: it has none."""
    return Path(os.path.realpath(file)) if (file := getattr(sys.modules.get(module), "__file__", None)) else Path()


def is_installed(file: Path) -> bool:
    """Whether a file belongs to Python or to an installed package."""
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    return any(file.is_relative_to(os.path.realpath(sysconfig.get_path(name))) for name in names)


def _is_there(module: str, given: Path | None) -> bool:
    """Whether a trial finds a module: it is installed, or in the folder that is sent."""
    top = module.partition(".")[0]
    source = _source(top)
    if source == Path():
        return top in sys.builtin_module_names
    return is_installed(source) or (given is not None and source.is_relative_to(given))


def _plain(content: bytes, folder: Path, given: Path | None) -> SentFunction:
    if given is not None:
        shutil.copytree(given, folder, dirs_exist_ok=True)
    (folder / _PLAIN).write_bytes(content)
    return SentFunction(what=f"{_PLAIN}:{_VERSION}", folder=folder, python_version=_VERSION)


def _pickled(function: Callable[[Any], Any], folder: Path, given: Path | None) -> SentFunction:
    cloudpickle = _cloudpickle()
    if given is not None:
        shutil.copytree(given, folder, dirs_exist_ok=True)
    try:
        content = cloudpickle.dumps(function)
    except Exception as error:  # whatever an object of the user's raises
        raise InvalidInput(
            f"function: cannot be sent ({type(error).__name__}: {error}); it may use only what can be pickled, so open "
            "files, locks and connections inside it"
        ) from None
    _require_modules(content, given)
    (folder / _PICKLED).write_bytes(content)
    shutil.copytree(Path(cloudpickle.__file__).parent, folder / "cloudpickle", dirs_exist_ok=True)
    return SentFunction(what=f"{_PICKLED}:{_VERSION}", folder=folder, python_version=_VERSION)


def _cloudpickle() -> Any:
    if find_spec("cloudpickle") is None:
        raise InvalidInput(
            "function: belongs to no module that a trial could import, so it needs cloudpickle; install it with `pip "
            "install nni-manager[programs]`, or put the function into a module"
        )
    import cloudpickle

    return cloudpickle


def _require_modules(content: bytes, given: Path | None) -> None:
    """Raises InvalidInput for a module that the function imports and that is not sent."""
    for name in sorted({module.partition(".")[0] for module in imported_modules(content)}):
        source = _source(name)
        if source == Path() or is_installed(source) or (given is not None and source.is_relative_to(given)):
            continue
        root = source.parent.parent if source.name == "__init__.py" else source.parent
        raise InvalidInput(f"function: uses module {name}, which is not sent; give code_directory={str(root)!r}")


#: cloudpickle's function that imports the module that its argument names.
_IMPORTS = ("cloudpickle.cloudpickle", "subimport")


def imported_modules(content: bytes) -> Iterator[str]:
    """Names of the modules that reading a pickle imports, perhaps repeated. `content`: of protocol 4 or newer."""
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
