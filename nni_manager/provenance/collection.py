"""All that is recorded of a new experiment, collected beside its start: nothing here delays or fails one."""

from __future__ import annotations

import asyncio
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nni_manager.domain.clock import now_ms
from nni_manager.platform_kit.secret_texts import SecretTexts
from nni_manager.provenance import python_state, repository
from nni_manager.provenance.python_state import PythonState
from nni_manager.provenance.repository import CodeState
from trial_runner.protocol import VERSION

_SECRET_NAME = re.compile(r"password|passwd|secret|token|credential|_key$|^key$", re.IGNORECASE)
_SEEDS = ("seed", "random_state")
#: Shorter values of variables would be found in any text.
_LEAST_SECRET = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What to look at."""

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
    """The record, as REST has it. Never raises but for a cancellation."""
    secrets = SecretTexts(*asked.secrets, *_secret_values(asked.environment))
    code, python = await asyncio.gather(
        repository.look(asked.code_directory, asked.environment, secrets),
        python_state.look(asked.python, asked.environment),
    )
    return {
        "collectedMs": now_ms(),
        "host": platform.node(),
        "system": platform.platform(),
        "manager": VERSION,
        "seed": _seed(asked.tuner_arguments),
        "python": _python(python),
        "code": _code(code),
    }


def _secret_values(environment: Mapping[str, str]) -> list[str]:
    """Values of variables whose names say that they are secrets."""
    return [value for name, value in environment.items() if len(value) >= _LEAST_SECRET and _SECRET_NAME.search(name)]


def _seed(arguments: Mapping[str, Any]) -> int | None:
    """The seed that the tuner was given; None: it draws its own."""
    found = [arguments.get(name) for name in _SEEDS]
    return next((seed for seed in found if isinstance(seed, int) and not isinstance(seed, bool)), None)


def _python(state: PythonState) -> dict[str, Any]:
    packages = [{"name": name, "version": version} for name, version in state.packages]
    return {
        "executable": state.executable,
        "version": state.version,
        "packages": packages,
        "problem": state.problem,
    }


def _code(state: CodeState) -> dict[str, Any]:
    return {
        "directory": state.directory,
        "commit": state.commit,
        "branch": state.branch,
        "remote": state.remote,
        "diff": state.diff,
        "isDiffCut": state.is_diff_cut,
        "maskedValues": state.masked_values,
        "untracked": list(state.untracked),
        "problem": state.problem,
    }
