"""Runs all checks, in the order of the report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from nni_manager.app.doctor import config_file, daemon_and_keeper, data_directory, installation, ports
from nni_manager.app.doctor.finding import CheckFinding, failure, ok
from nni_manager.config import settings as configured
from nni_manager.config.settings import Settings
from nni_manager.domain.errors import NniManagerError

_Look = Callable[[], Iterator[CheckFinding]]


def examine(data_dir: Path, environment: Mapping[str, str], *, config: Path | None = None) -> Iterator[CheckFinding]:
    """The findings, each yielded at once. `config`: an experiment file to check."""
    settings, finding = _settings(data_dir, environment)
    looks: list[tuple[str, _Look]] = [
        ("python", installation.look_at_python),
        ("nnictl", partial(installation.look_at_command, environment)),
        ("data directory", partial(data_directory.look, settings.data_dir, settings.disk_warning_mib)),
        ("shared places", partial(data_directory.look_at_shared_places, settings.data_dir, environment)),
        ("daemon", partial(daemon_and_keeper.look_at_daemon, settings.data_dir)),
        ("ports", partial(ports.look, settings)),
        ("clock", installation.look_at_clock),
        ("keeper", partial(daemon_and_keeper.look_at_keeper, settings.data_dir)),
        ("tuners", installation.look_at_algorithms),
    ]
    if config is not None:
        looks.append(("config", partial(config_file.look, config, settings.data_dir)))
    yield finding
    for name, look in looks:
        yield from _guarded(name, look)


def _settings(data_dir: Path, environment: Mapping[str, str]) -> tuple[Settings, CheckFinding]:
    """The daemon's settings, or the defaults if they cannot be used, and the finding."""
    try:
        found = configured.load({"data_dir": str(data_dir)}, environment)
    except NniManagerError as error:
        advice = f"correct {data_dir / configured.FILE}, or the named variable or folder"
        return Settings(data_dir=data_dir), failure("settings", " ".join(str(error).split()), advice)
    return found, ok("settings", "the daemon's settings are valid")


def _guarded(name: str, look: _Look) -> Iterator[CheckFinding]:
    """The findings of a check; an unexpected exception becomes a finding, so that the other checks run."""
    try:
        yield from look()
    except Exception as error:
        yield failure(name, f"the check failed: {error!r}", "please report this line")
