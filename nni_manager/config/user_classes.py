"""Checks users' tuners and assessors before an experiment is created.

A process of the Python that will run them imports the classes (`trial_runner.tuner_host`), as in the experiment.
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

#: Maximum time for the import of a class, in seconds: a large framework from a cold disk may take a minute.
PATIENCE_S = 120.0
_FIELD = "tunerPython"
_TAIL = 4096
_NOT_FOUND = "ModuleNotFoundError"


class _Failed(Exception):
    """The Python did not answer; the text is the reason."""


def python(asked: str, environment: Mapping[str, str] | None, *, file: str = "") -> str:
    """The absolute path of the Python that runs users' classes.

    `asked`: a path, or a name on the PATH of `environment`; empty: ``python3``, or, without an environment or a
    ``python3`` on its PATH, the manager's own. Raises ConfigInvalid if the requested program does not exist.
    """
    path = (os.environ if environment is None else environment).get("PATH", os.defpath)
    if not asked:
        return (_which("python3", path) if environment is not None else None) or sys.executable
    if (found := _which(asked, path)) is None:
        where = "" if "/" in asked else f" on the PATH {path}"
        message = f"cannot find program {asked}{where}; name the Python that runs your tuner"
        raise ConfigInvalid.of(message, field=_FIELD, file=file)
    return found


def _which(name: str, path: str) -> str | None:
    found = shutil.which(name, path=path)
    return os.path.abspath(found) if found else None


async def check(spec: ExperimentSpec, python: str, environment: Mapping[str, str], *, file: str = "") -> str:
    """Check that this Python can use the experiment's classes; return the tuner's default `optimize_mode`.

    The result is ``maximize`` or ``minimize``, or empty for a class without a default and for a built-in tuner. Raises
    ConfigInvalid that names the unusable classes.
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
    #: Label → why the class cannot be used: a message, or the last line of a traceback.
    refusals: Mapping[str, str]
    #: Label → ``maximize`` or ``minimize``: the default of the class's argument `optimize_mode`, if it has one.
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
    """What this Python reports about classes, by their labels in `asked`.

    A class with the label ``tuner`` must be a tuner. `with_arguments`: a class that does not accept its ``class_args``
    is unusable.
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
    """The answer of a tuner host to one request, after which the host ends. Raises _Failed."""
    with tempfile.TemporaryDirectory(prefix="nni-manager-") as folder, tempfile.TemporaryFile() as errors:
        places = {"NNI_CHECKPOINT_DIRECTORY": folder, "NNI_LOG_DIRECTORY": folder}
        places["PYTHONDONTWRITEBYTECODE"] = "1"  # do not write to the user's folder
        frame = protocol.encode({**request, "id": 1})
        output = await _run([python, TUNER_HOST], frame, {**with_stand_in(environment), **places}, directory, errors)
        answers = protocol.Decoder().feed(output)
        if not answers:
            raise _Failed(_last_line(errors) or "it ended without a message")
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
        raise _Failed(f"the import takes longer than {PATIENCE_S:.0f} seconds") from None
    finally:
        with suppress(ProcessLookupError, PermissionError):  # including the processes that it started
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    return output


def _last_line(errors: IO[bytes]) -> str:
    errors.seek(max(0, errors.seek(0, os.SEEK_END) - _TAIL))
    lines = errors.read().decode(errors="replace").strip().splitlines()
    return lines[-1].strip() if lines else ""
