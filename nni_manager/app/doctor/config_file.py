"""Checks an experiment file: whether it is valid, and whether its platform is usable from here."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from nni_manager.app import identity
from nni_manager.app.doctor import data_directory
from nni_manager.app.doctor.finding import CheckFinding, CheckOutcome, failure, ok, warning
from nni_manager.config import admission, credentials, experiment_file
from nni_manager.config.settings import TEMPORARY, own_environment
from nni_manager.domain.errors import ConfigInvalid, InvalidInput
from nni_manager.domain.experiment import ExperimentSpec, Json, PlatformSpec
from nni_manager.machines.keeper import machines
from nni_manager.machines.keeper.local_process import LocalKeeper, connected
from nni_manager.machines.keeper.machines import KeeperConnection
from nni_manager.machines.waiting_queue import Places
from nni_manager.platform_kit.connections import Connections
from nni_manager.platform_kit.contract import PreflightFinding, Severity
from nni_manager.scheduler.experiments import preflight
from nni_manager.scheduler.experiments.preflight import standalone_host

#: Seconds to wait for the end of a keeper without jobs.
_KEEPER_END_S = 5.0


def look(path: Path, data_dir: Path) -> Iterator[CheckFinding]:
    """The findings. `data_dir`: holds the registered algorithms, and the identity that machines know."""
    try:
        reading = experiment_file.read_file(path, data_dir, os.environ)
    except ConfigInvalid as error:
        for problem in error.problems:
            yield failure("config", str(problem), "correct the file")
        return
    spec = reading.spec
    yield ok("config", f"{path} is valid")
    for found in spec.warnings:
        yield warning("config", str(found), "check whether this is intended")
    yield from data_directory.look_at_file(path, spec, reading.secrets)
    wrong = data_directory.trouble(Path(spec.working_directory))
    if wrong:
        yield failure("working directory", f"experimentWorkingDirectory: {wrong}", "name another folder in the file")
    try:
        admission.check_here(spec, data_dir, own_environment(), file=str(path))
    except ConfigInvalid as error:
        for problem in error.problems:
            yield failure("config", str(problem), "correct the file")
        return
    except InvalidInput as error:
        yield failure("platform", f"{_names(spec)}: {error}", "install its extra, or change the file")
        return
    yield ok("platform", f"{_names(spec)} can be imported and accepts this experiment")
    for service in spec.platforms:
        yield from _preflight(service, spec, reading.secrets, data_dir)


def _names(spec: ExperimentSpec) -> str:
    return " and ".join(platform.service for platform in spec.platforms)


def _preflight(
    service: PlatformSpec, spec: ExperimentSpec, secrets: Mapping[str, str], data_dir: Path
) -> Iterator[CheckFinding]:
    connections = Connections(*identity.shown_to_machines(data_dir))
    folder = Path(spec.working_directory) / "doctor"
    storage, environment = credentials.filled_storage(spec, secrets), spec.kept_of(own_environment())
    for found in asyncio.run(_ask(service, folder, secrets, storage, connections, environment)):
        sentence = f"{service.service}: {found.subject}: {found.sentence}"
        yield CheckFinding(verdict=_VERDICTS[found.severity], check="preflight", sentence=sentence, advice=found.fix)


async def _ask(
    service: PlatformSpec,
    folder: Path,
    secrets: Mapping[str, str],
    storage: Json | None,
    connections: Connections,
    environment: Mapping[str, str],
) -> Sequence[PreflightFinding]:
    """The training service's findings. A service that needs this machine's keeper gets a temporary one."""
    with tempfile.TemporaryDirectory(
        prefix="nni-doctor-", dir=TEMPORARY
    ) as name:  # short, because paths of sockets are limited
        process = LocalKeeper(Path(name) / "keeper", Path(name) / "keeper.sock")
        async with connected(process, "doctor's") as keeper:
            connections.offer(machines.LOCAL, lambda: KeeperConnection(keeper, connections.shared_object(Places)))
            try:
                host = standalone_host(
                    "doctor",
                    service.service,
                    folder,
                    connections,
                    storage,
                    environment=environment,
                    may_try_jobs=True,
                )
                return await preflight.ask(service, secrets, host)
            finally:
                await process.ended(_KEEPER_END_S)


_VERDICTS = {
    Severity.WRONG: CheckOutcome.FAIL,
    Severity.AWAY: CheckOutcome.WARN,
    Severity.WARNING: CheckOutcome.WARN,
    Severity.FINE: CheckOutcome.OK,
}
