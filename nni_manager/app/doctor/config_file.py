"""An experiment file: is it valid, and can its platform be used from here."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

from nni_manager.app.doctor import data_directory
from nni_manager.app.doctor.finding import Finding, Verdict, failure, ok, warning
from nni_manager.config import experiment_file
from nni_manager.domain.errors import ConfigInvalid, InvalidInput, PlatformUnavailable
from nni_manager.domain.experiment import ExperimentSpec, PlatformSpec
from nni_manager.platform_kit import registry
from nni_manager.platform_kit.connections import Connections
from nni_manager.platform_kit.contract import PreflightFinding, Severity
from nni_manager.platform_kit.keeper_client import Keeper
from nni_manager.scheduler import preflight
from nni_manager.scheduler.lone_host import lone_host


def look(path: Path, data_dir: Path) -> Iterator[Finding]:
    """`data_dir`: where algorithms of one's own are registered."""
    try:
        spec = experiment_file.load_file(path, data_dir)
    except ConfigInvalid as error:
        for problem in error.problems:
            yield failure("config", str(problem), "correct the file")
        return
    yield ok("config", f"{path} is valid")
    for found in spec.warnings:
        yield warning("config", str(found), "look whether this is meant")
    wrong = data_directory.trouble(Path(spec.working_directory))
    if wrong:
        yield failure("working directory", f"experimentWorkingDirectory: {wrong}", "name another folder in the file")
    for service in spec.platforms:
        yield from _platform(service, spec)


def _platform(service: PlatformSpec, spec: ExperimentSpec) -> Iterator[Finding]:
    """Whether it takes the experiment, and then what the training service itself says."""
    try:
        registry.adapter_of(service).check(spec, service)
    except InvalidInput as error:
        yield failure("platform", f"{service.service}: {error}", "install its extra, or change the file")
        return
    yield ok("platform", f"{service.service} can be imported and takes this experiment")
    folder = Path(spec.working_directory) / "doctor"
    for found in asyncio.run(_ask(service, folder)):
        sentence = f"{service.service}: {found.subject}: {found.sentence}"
        yield Finding(verdict=_VERDICTS[found.severity], check="preflight", sentence=sentence, advice=found.fix)


async def _ask(service: PlatformSpec, folder: Path) -> Sequence[PreflightFinding]:
    return await preflight.ask(service, lone_host("doctor", service.service, folder, Keeper(_no_keeper), Connections()))


async def _no_keeper(_: object) -> asyncio.Transport:
    raise PlatformUnavailable("the keeper of this machine is the daemon's")


_VERDICTS = {
    Severity.WRONG: Verdict.FAIL, Severity.AWAY: Verdict.WARN, Severity.WARNING: Verdict.WARN,
    Severity.FINE: Verdict.OK,
}  # fmt: skip
