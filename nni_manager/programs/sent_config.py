"""The request for an experiment on another machine's manager: the parsed file and the packed code directory.

Files that the config names are read on this machine. Paths inside the code directory become relative to it, because the
manager unpacks it elsewhere.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nni_manager.client.caller import own_environment
from nni_manager.domain.errors import ConfigInvalid
from nni_manager.provenance.collection import Asked, collect

if TYPE_CHECKING:
    from nni_manager.client.manager_client import ManagerClient


#: Placeholder of an experimentWorkingDirectory that the file does not set, which is not sent.
_DEFAULT_FOLDER = "/proc/nni-manager-default"
_DIRECTORY = "trialCodeDirectory"


def read(
    text: str, directory: str, file: str, environment: Mapping[str, str]
) -> tuple[dict[str, Any], Mapping[str, str], Path, tuple[str, ...]]:
    """(config for the manager, its secrets by reference, code directory on this machine, warnings). Raises
    ConfigInvalid."""
    from nni_manager.config import experiment_file

    reading = experiment_file.read(
        text,
        directory=Path(directory),
        file=file,
        working_directory=Path(_DEFAULT_FOLDER),
        elsewhere=True,
        environment=environment,
    )
    spec = reading.spec
    warnings = tuple(map(str, spec.warnings))
    config = _relative(dict(spec.canonical), spec.trial_code_directory, file)
    return config, reading.secrets, Path(spec.trial_code_directory), warnings


def send_code(client: ManagerClient, directory: Path) -> str:
    """Pack a code directory and send it unless the manager has it; return its SHA-256. Raises InvalidInput."""
    from nni_manager.code_archive import pack

    with tempfile.TemporaryDirectory(prefix="nnictl-") as folder:
        archive = pack(directory, Path(folder)).path
        with open(archive, "rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        if not client.has_code(sha256):
            client.send_code(archive, sha256)
    return sha256


def as_text(config: dict[str, Any]) -> str:
    return json.dumps(config, ensure_ascii=False)


@contextmanager
def collecting(
    code: Path, python: str, secrets: Mapping[str, str], config: Mapping[str, Any]
) -> Iterator[Future[dict[str, Any]]]:
    """Collect the provenance record here, in a thread while the code is packed and sent.

    Waits for its end, at most ten seconds.
    """
    tuner = config.get("tuner")
    arguments = tuner.get("classArgs") if isinstance(tuner, Mapping) else None
    asked = Asked(
        code_directory=str(code),
        python=shutil.which(python or "python3") or sys.executable,
        environment=own_environment(),
        secrets=tuple(secrets.values()),
        tuner_arguments=arguments if isinstance(arguments, Mapping) else {},
    )
    with ThreadPoolExecutor(1, thread_name_prefix="provenance") as pool:
        yield pool.submit(lambda: asyncio.run(collect(asked)))


def _relative(config: dict[str, Any], directory: str, file: str) -> dict[str, Any]:
    if config["experimentWorkingDirectory"] == _DEFAULT_FOLDER:
        del config["experimentWorkingDirectory"]
    config[_DIRECTORY] = "."
    for name in ("tuner", "assessor"):
        if "codeDirectory" in config.get(name, {}):
            config[name] = {**config[name], "codeDirectory": _inside(config[name], directory, name, file)}
    services = config["trainingService"]
    several = services if isinstance(services, list) else [services]
    kept = [_without_directory(one, directory, file) for one in several]
    config["trainingService"] = kept if isinstance(services, list) else kept[0]
    return config


def _inside(algorithm: dict[str, Any], directory: str, name: str, file: str) -> str:
    path = os.path.relpath(algorithm["codeDirectory"], directory)
    if path == ".." or path.startswith("../"):
        raise ConfigInvalid.of(
            f"must be inside {_DIRECTORY} ({directory}), because only that folder is sent",
            field=f"{name}.codeDirectory",
            file=file,
        )
    return path


def _without_directory(service: dict[str, Any], directory: str, file: str) -> dict[str, Any]:
    """The section of a service without its code directory: it inherits the one of the top level.

    Raises ConfigInvalid for a service with another code directory.
    """
    if service.get(_DIRECTORY, directory) != directory:
        raise ConfigInvalid.of(
            f"must be {directory}, because only one folder is sent", field=f"trainingService.{_DIRECTORY}", file=file
        )
    return {key: value for key, value in service.items() if key != _DIRECTORY}
