"""The daemon's settings, from command line, environment, file or default, in this order.

The file ``<data directory>/settings.yml`` is optional. Case and underscores of its fields are ignored, as in an
experiment's config.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from nni_manager.client.data_directory import require_trusted
from nni_manager.config.reading import scalars
from nni_manager.config.reading.scalars import plain_value
from nni_manager.config.reading.source import Source, read_text
from nni_manager.config.sections.experiment_model import LogLevel
from nni_manager.config.sections.model_fields import fields_of
from nni_manager.config.sections.model_section import read_model, valid_settings
from nni_manager.domain.endpoint import DEFAULT_PORT
from nni_manager.domain.environment import SETTINGS_PREFIX, data_directory, without_settings
from nni_manager.domain.errors import InvalidInput

FILE = "settings.yml"
TEMPORARY = Path("/tmp")  # noqa: S108  its owner is checked; not TMPDIR, which differs between shells


def _alias(attribute: str) -> str:
    """The name of a setting in the file."""
    return to_camel(attribute.removesuffix("_s"))


def _setting(sentence: str, default: Any, *, format: str = "nonblank", **rules: Any) -> Any:
    """A setting with its description. `format`: see `config.sections.formats`; `rules`: pydantic's."""
    marks: dict[str, Any] | None = {"format": format, "placeholders": "kept"} if format else None
    return Field(default=default, description=sentence, json_schema_extra=marks, **rules)


class _FileSettings(BaseModel):
    """The settings that file and environment may set."""

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        frozen=True,
        alias_generator=_alias,
        validate_by_name=True,
        validate_by_alias=True,
        hide_input_in_errors=True,
    )

    host: str = _setting("Address on which the service listens.", "127.0.0.1")
    port: int = _setting(
        "TCP port of the service. Without a service: first port tried for an experiment's own page. 0: any free port.",
        DEFAULT_PORT,
        format="",
        ge=0,
        le=65535,
    )
    trial_host: str = _setting(  # all addresses: runners come from other machines, each with its attempt's token
        "Address on which the trial listener listens.",
        "0.0.0.0",  # noqa: S104 - as above
    )
    trial_port: int = _setting(
        "TCP port of the trial listener; 0: the service's port + 1.", 0, format="", ge=0, le=65535
    )
    trial_tls_certificate: str = _setting(
        "PEM file with the trial listener's certificate chain, relative to the data directory; empty: no TLS.",
        "",
    )
    trial_tls_key: str = _setting("PEM file with the private key of that certificate.", "")
    trial_tls_authority: str = _setting(
        "PEM file with authorities that runners trust in addition to their machine's; empty: the certificate.", ""
    )
    trial_url: str = _setting(
        "Address of the proxy at which runners reach the trial listener; empty: the listener's own address.", ""
    )
    token: str = _setting(
        "Token that clients of the service must send; empty: no token.", "", format="token", repr=False
    )
    read_token: str = _setting(
        "Token that allows clients of the service to read only; empty: no such token.",
        "",
        format="token",
        repr=False,
    )
    allow_local_users: bool | frozenset[int] = _setting(
        "Local users admitted while no token is set, in addition to your own user and root; true: all local users.",
        False,
        format="local-users",
    )
    tuner_patience_s: float = _setting(
        "Time in seconds after which a call of the tuner that has not returned is reported with its stack.",
        60.0,
        format="interval",
    )
    safety_poll_s: float = _setting(
        "Interval in seconds between checks of training services that sent no event.", 30.0, format="interval"
    )
    disk_warning_mib: int = _setting(
        "Free disk space in MiB below which the manager warns; 0: no warning.",
        1024,
        format="",
        ge=0,
        le=2**40,
    )
    log_level: LogLevel = _setting("Log level of the daemon.", "info", format="")


class Settings(_FileSettings):
    """The settings of one daemon."""

    data_dir: Path = Field(
        description="Folder of the index, lock, settings file and, by default, the experiments' folders."
    )


def variables() -> dict[str, str]:
    """The settings of file and environment: name in the file → variable of the environment."""
    attributes = _FileSettings.model_fields
    return {_alias(one): SETTINGS_PREFIX + one.removesuffix("_s").upper() for one in attributes}


def load(arguments: Mapping[str, object], environment: Mapping[str, str]) -> Settings:
    """The settings of the daemon, from the command line, the environment and the file.

    `arguments`: checked values of the command line, by attribute of `Settings`; None: not given. An empty variable and
    a missing file count as not set.

    Raises ConfigInvalid with all problems, and InvalidInput for a data directory of another user.
    """
    wanted = arguments.get("data_dir")
    directory = data_directory(None if wanted is None else str(wanted), environment)
    require_trusted(directory)
    given = {_alias(name): value for name, value in arguments.items() if value is not None and name != "data_dir"}
    values = _from_file(directory / FILE) | _from_environment(environment) | given
    return Settings.model_validate({**values, "data_dir": directory})


def runtime_directory(environment: Mapping[str, str], temporary: Path = TEMPORARY) -> Path:
    """The folder of the sockets, created if missing.

    It is ``$XDG_RUNTIME_DIR/nni-manager``, else a folder below `temporary`. Raises InvalidInput if another user owns it
    and could then connect to the daemon.
    """
    base = environment.get("XDG_RUNTIME_DIR", "")
    directory = Path(base, "nni-manager") if os.path.isdir(base) else temporary / f"nni-manager-{os.getuid()}"
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
        _make_private(directory)
    except OSError as error:
        raise InvalidInput(f"{directory} cannot be created or used: {error.strerror}; set XDG_RUNTIME_DIR") from None
    return directory


def _make_private(directory: Path) -> None:
    status = directory.lstat()  # a symbolic link may lead to a folder of another user
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise InvalidInput(f"{directory} is not a folder of your user; remove it, or set XDG_RUNTIME_DIR")
    if stat.S_IMODE(status.st_mode) != 0o700:
        directory.chmod(0o700)


def _from_environment(environment: Mapping[str, str]) -> dict[str, object]:
    names = variables()
    fields = fields_of(_FileSettings)
    given = {name: environment[variable] for name, variable in names.items() if environment.get(variable)}
    raw = {name: text if fields[name].annotation is str else plain_value(text) for name, text in given.items()}
    source = Source(directory="/", file="environment", translate=lambda path, words: ((names[str(path[0])],), words))
    return _read(raw, source)


def _from_file(path: Path) -> dict[str, object]:
    if not os.path.lexists(path):
        return {}
    from nni_manager.config.reading import yaml_reader  # the YAML library, only where there is a file to read

    document = yaml_reader.read(read_text(str(path)), str(path))
    source = Source(directory=str(path.parent), file=str(path), document=document)
    fields = document.root.value
    if not isinstance(fields, dict | None):
        source.refuse((), f"must be a mapping of settings to values, not {scalars.kind(fields)}")
    return _read(fields if isinstance(fields, dict) else {}, source)


def _read(raw: Mapping[str, object], source: Source) -> dict[str, object]:
    """The settings that a mapping sets, by their names in the file. Raises ConfigInvalid."""
    values = valid_settings(_FileSettings, read_model(raw, _FileSettings, (), "", source), (), source)
    source.check()
    return values


def own_environment() -> dict[str, str]:
    """The default environment of experiments: the daemon's own, without its settings and token."""
    return without_settings(os.environ)
