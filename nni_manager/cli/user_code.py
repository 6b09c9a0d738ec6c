"""Runs users' code in a process of its own: it may do anything while it is imported."""

from __future__ import annotations

import os
import subprocess
import sys

from nni_manager.domain.errors import InvalidInput

#: Seconds for it to end.
_PATIENCE_S = 120
_IMPORT = """
import importlib, json, sys
if sys.argv[1]:
    sys.path.insert(0, sys.argv[1])
def find(name):
    module, _, attribute = name.rpartition(".")
    found = getattr(importlib.import_module(module), attribute, None)
    if not callable(found):
        raise SystemExit(f"module {module} has no class {attribute}")
    return found
"""
_LOOK = "for name in sys.argv[2:]: find(name)\n"
_VALIDATE = "find(sys.argv[2])().validate_class_args(**json.load(sys.stdin))\n"


def missing(directory: str, classes: list[str]) -> str:
    """Why not all classes (``module.Class``) can be imported, as the last line of a traceback; else empty.

    `directory`: put in front of the search path, unless it is empty.
    """
    return _complaint(_IMPORT + _LOOK, [directory, *classes])


def objection(directory: str, validator: str, class_args: str) -> str:
    """What an NNI `ClassArgsValidator` has against arguments, given as JSON; else empty."""
    return _complaint(_IMPORT + _VALIDATE, [directory, validator], class_args)


def _complaint(program: str, arguments: list[str], text: str = "") -> str:
    from nni_manager.platform_kit.payload import with_stand_in

    try:
        # -P: the folder this runs in is not where modules come from
        done = subprocess.run(
            [sys.executable, "-P", "-c", program, *arguments], env=with_stand_in(os.environ), input=text,
            capture_output=True, text=True, errors="replace", timeout=_PATIENCE_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"it takes longer than {_PATIENCE_S} seconds"
    except OSError as error:
        raise InvalidInput(f"{sys.executable} cannot be started ({error.strerror})") from None
    lines = done.stderr.strip().splitlines()
    return (lines[-1] if lines else f"exit code {done.returncode}") if done.returncode else ""
