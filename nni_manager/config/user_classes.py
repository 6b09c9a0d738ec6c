"""Users' tuners and assessors before an experiment is made of them: the Python that runs them, and whether it can.

The classes are imported in a process of that Python (`trial_runner.tuner_host`), as they will be in the experiment.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import IO, Any

from nni_manager.domain.algorithm import AlgorithmSpec
from nni_manager.domain.errors import ConfigInvalid, Problem
from nni_manager.domain.experiment import ExperimentSpec
from nni_manager.platform_kit import child_process
from nni_manager.platform_kit.payload import TUNER_HOST, with_stand_in
from nni_manager.tuners.registry import CATALOGUE as TUNERS
from trial_runner import protocol

#: The most seconds for a class to be imported: a large framework from a cold disk may take a minute.
PATIENCE_S = 120.0
_FIELD = "tunerPython"
_TAIL = 4096
_NOT_FOUND = "ModuleNotFoundError"


class _Failed(Exception):
    """The Python gave no answer; the text says why."""


def python(asked: str, environment: Mapping[str, str] | None, *, file: str = "") -> str:
    """The absolute path of the Python that runs users' classes.

    `asked`: a path, or a name that the PATH of `environment` finds; empty: ``python3``. If nothing is asked for, and
    there is no caller's environment or no ``python3`` on its PATH, it is the manager's own. Raises ConfigInvalid when
    what was asked for is not there.
    """
    path = (os.environ if environment is None else environment).get("PATH", os.defpath)
    if not asked:
        return (_which("python3", path) if environment is not None else None) or sys.executable
    if (found := _which(asked, path)) is None:
        where = "" if "/" in asked else f" on the PATH {path}"
        message = f"there is no program {asked}{where}; name the Python that runs your tuner"
        raise ConfigInvalid.of(message, field=_FIELD, file=file)
    return found


def _which(name: str, path: str) -> str | None:
    found = shutil.which(name, path=path)
    return os.path.abspath(found) if found else None


async def check(spec: ExperimentSpec, python: str, environment: Mapping[str, str], *, file: str = "") -> str:
    """Checks that this Python can use the experiment's own classes; returns the tuner's default `optimize_mode`.

    That is ``maximize`` or ``minimize``; empty: the class has none, or the tuner is a built-in one. Raises
    ConfigInvalid that names the classes that cannot be used.
    """
    given = {"tuner": spec.tuner, "assessor": spec.assessor}
    asked = {kind: one for kind, one in given.items() if one is not None and one.class_name}
    if not asked:
        return ""
    found = await find(
        asked,
        python,
        environment,
        gpus=spec.tuner_gpu_indices or (),
        directory=spec.trial_code_directory,
        with_arguments=True,
    )
    problems = [
        Problem(
            field=f"{kind}.name" if TUNERS.of_class(asked[kind].class_name) else f"{kind}.className",
            message=sentence(asked[kind], python, refusal),
            file=file,
        )
        for kind, refusal in found.refusals.items()
    ]
    if problems:
        raise ConfigInvalid(problems)
    return found.directions.get("tuner", "")


def sentence(algorithm: AlgorithmSpec, python: str, refusal: str) -> str:
    of_nni = TUNERS.of_class(algorithm.class_name)
    if of_nni is not None and _NOT_FOUND in refusal:
        return of_nni.not_installed(python, refusal)
    return f"{algorithm.class_name} cannot be used by {python}: {refusal}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundClasses:
    #: Label → why the class cannot be used: a sentence, or the last line of a traceback.
    refusals: Mapping[str, str]
    #: Label → ``maximize`` or ``minimize``: the default of the class's argument `optimize_mode`, where it has one.
    directions: Mapping[str, str] = field(default_factory=dict)


async def find(
    asked: Mapping[str, AlgorithmSpec],
    python: str,
    environment: Mapping[str, str],
    *,
    gpus: tuple[int, ...] = (),
    directory: str = "/",
    with_arguments: bool = False,
) -> FoundClasses:
    """What this Python says of classes, by their labels in `asked`.

    A class with the label ``tuner`` must be a tuner. `with_arguments`: a class that does not take its ``class_args``
    cannot be used either.
    """
    unjudged = {} if with_arguments else {"class_args": None}
    request = {"verb": "find", "classes": {label: {**asdict(one), **unjudged} for label, one in asked.items()}}
    visible = {**environment, protocol.ENV_GPUS: ",".join(map(str, gpus))}
    try:
        return FoundClasses(**await _ask(python, request, visible, directory))
    except _Failed as failure:
        return FoundClasses(refusals=dict.fromkeys(asked, str(failure)))


async def objection(
    validator: str, code_directory: str, class_args: Mapping[str, object], python: str, environment: Mapping[str, str]
) -> str:
    """The objection of an NNI `ClassArgsValidator` (``module.Class``) to arguments; empty: none."""
    request = {"validator": validator, "code_directory": code_directory, "class_args": dict(class_args)}
    try:
        return str((await _ask(python, {"verb": "validate", **request}, environment, "/"))["refusal"])
    except _Failed as failure:
        return str(failure)


async def _ask(python: str, request: dict[str, Any], environment: Mapping[str, str], directory: str) -> dict[str, Any]:
    """The answer of a tuner host to one request; the host ends after it. Raises _Failed."""
    with tempfile.TemporaryDirectory(prefix="nni-manager-") as folder, tempfile.TemporaryFile() as errors:
        places = {"NNI_CHECKPOINT_DIRECTORY": folder, "NNI_LOG_DIRECTORY": folder}
        places["PYTHONDONTWRITEBYTECODE"] = "1"  # the user's folder is only looked at
        frame = protocol.encode({**request, "id": 1})
        output = await _run([python, TUNER_HOST], frame, {**with_stand_in(environment), **places}, directory, errors)
        answers = protocol.Decoder().feed(output)
        if not answers:
            raise _Failed(_last_line(errors) or "it ended without a word")
    if (error := answers[0].get("error")) is not None:
        raise _Failed(error["message"])
    return dict(answers[0]["result"])


async def _run(
    command: list[str], text: bytes, environment: Mapping[str, str], directory: str, errors: IO[bytes]
) -> bytes:
    try:
        process = await child_process.start(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            cwd=directory,
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        raise _Failed(f"it cannot be started ({error.strerror})") from None
    try:
        async with asyncio.timeout(PATIENCE_S):
            output, _ = await process.communicate(text)
    except TimeoutError:
        raise _Failed(f"importing it takes longer than {PATIENCE_S:.0f} seconds") from None
    finally:
        with suppress(ProcessLookupError, PermissionError):  # the processes that it started too
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    return output


def _last_line(errors: IO[bytes]) -> str:
    errors.seek(max(0, errors.seek(0, os.SEEK_END) - _TAIL))
    lines = errors.read().decode(errors="replace").strip().splitlines()
    return lines[-1].strip() if lines else ""
