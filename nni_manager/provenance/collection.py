"""Collects the provenance record of a new experiment during its start, without delaying or failing it.

The Python of the caller lists its own packages.
"""

from __future__ import annotations

import ast
import asyncio
import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from nni_manager.domain.clock import now_ms
from nni_manager.platform_kit.secret_names import may_be_secret
from nni_manager.platform_kit.secret_texts import SecretTexts
from nni_manager.provenance import child, repository
from nni_manager.provenance.child import NoAnswer
from trial_runner.protocol import VERSION

#: Packages that are kept, and bytes of the answer.
MOST_PACKAGES = 2000
_MOST_BYTES = 2**20
#: Names of folders alone: reading the metadata of hundreds of packages takes a second. It says a literal, as the
#: import of JSON takes as long as all the rest. Any Python 3 runs it.
_LISTING = """\
import os, sys
found = {}
for place in sys.path:
    try:
        names = sorted(os.listdir(place)) if place else []
    except OSError:
        names = []
    for name in names:
        stem, kind = os.path.splitext(name)
        if kind in (".dist-info", ".egg-info"):
            parts = stem.split("-")
            found.setdefault(parts[0].replace("_", "-").lower(), parts[1] if len(parts) > 1 else "")
version = ".".join(map(str, sys.version_info[:3]))
print(ascii((version, sorted(found.items()))))
"""


async def look_at_python(executable: str, environment: Mapping[str, str]) -> dict[str, Any]:
    """The report of a Python for the record; never raises. `environment`: with the PYTHONPATH of trials."""
    command = (executable, "-c", _LISTING)
    try:
        output = await child.read(command, directory="/", environment=environment, most=_MOST_BYTES)
        # after output of a sitecustomize
        version, found = ast.literal_eval(output.data.strip().splitlines()[-1].decode("ascii"))
        packages = [{"name": str(name), "version": str(number)} for name, number in found[:MOST_PACKAGES]]
        return {"executable": executable, "version": str(version), "packages": packages, "problem": ""}
    except NoAnswer as error:
        problem = str(error)
    except (ValueError, SyntaxError, LookupError, TypeError, RecursionError, MemoryError):
        problem = "it does not list its packages"
    return {"executable": executable, "version": "", "packages": [], "problem": problem}


_SEEDS = ("seed", "random_state")
#: Shorter values of variables would occur in any text.
_LEAST_SECRET = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The inputs of a record."""

    code_directory: str
    #: The caller's Python.
    python: str
    #: The caller's environment.
    environment: Mapping[str, str]
    #: Values that must not be in the record.
    secrets: tuple[str, ...] = ()
    #: `classArgs` of the tuner.
    tuner_arguments: Mapping[str, Any]


async def collect(asked: Asked) -> dict[str, Any]:
    """The record in the format of the REST API. Raises only for a cancellation."""
    known = (*asked.secrets, *_secret_values(asked.environment))
    secrets = SecretTexts(*known, *_lines(known))
    # unlike gather, it waits for both when it is cancelled: they have processes
    async with asyncio.TaskGroup() as looks:
        code = looks.create_task(repository.look(asked.code_directory, asked.environment, secrets))
        python = looks.create_task(look_at_python(asked.python, asked.environment))
    return {
        "collectedMs": now_ms(),
        "host": platform.node(),
        "system": platform.platform(),
        "manager": VERSION,
        "seed": _seed(asked.tuner_arguments),
        "python": python.result(),
        "code": code.result(),
    }


def _secret_values(environment: Mapping[str, str]) -> list[str]:
    return [value for name, value in environment.items() if len(value) >= _LEAST_SECRET and may_be_secret(name)]


def _lines(secrets: Iterable[str]) -> list[str]:
    """The lines of secrets, because a diff has a mark before each line."""
    lines = (line.strip() for secret in secrets for line in secret.splitlines())
    return [line for line in lines if len(line) >= _LEAST_SECRET]


def _seed(arguments: Mapping[str, Any]) -> int | None:
    """The tuner's seed, or None for a random one."""
    found = [arguments.get(name) for name in _SEEDS]
    return next((seed for seed in found if isinstance(seed, int) and not isinstance(seed, bool)), None)
