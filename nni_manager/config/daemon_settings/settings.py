"""The daemon's own settings: from the command line, else the environment, else the file, else the default.

The file is ``<data directory>/settings.yml``; it need not exist. Its fields are matched whatever their case and
underscores, as in an experiment's config.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from nni_manager.config.daemon_settings.local_users import local_users
from nni_manager.config.reading import scalars
from nni_manager.config.reading.plain_scalars import plain_value
from nni_manager.config.reading.source import Source, read_text
from nni_manager.config.sections.section import Section
from nni_manager.domain.environment import SETTINGS_PREFIX, without_settings
from nni_manager.domain.errors import ConfigInvalid, InvalidInput, Problem
from nni_manager.domain.text import parse_token

FILE = "settings.yml"
DATA_VARIABLE = "NNI_MANAGER_DATA"
DEFAULT_DATA_DIRECTORY = "~/nni-experiments"
TEMPORARY = Path("/tmp")  # noqa: S108  whose folder it is gets checked; not TMPDIR, which differs between shells


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of one daemon."""

    #: Index, lock, settings file and, by default, the experiments' folders. ``--data-dir``, ``NNI_MANAGER_DATA``.
    data_dir: Path
    #: Address that the service listens on. ``host``, ``NNI_MANAGER_HOST``.
    host: str = "127.0.0.1"
    #: TCP port of the service; 0: any free one. ``port``, ``NNI_MANAGER_PORT``.
    port: int = 8080
    #: Address that the trial listener listens on. ``trialHost``, ``NNI_MANAGER_TRIAL_HOST``.
    trial_host: str = "0.0.0.0"  # noqa: S104  (runners come from other machines; each shows its attempt's token)
    #: TCP port of the trial listener; 0: the service's + 1. ``trialPort``, ``NNI_MANAGER_TRIAL_PORT``.
    trial_port: int = 0
    #: Certificate of the trial listener, PEM, with what stands between it and its authority; empty: runners come
    #: without TLS. A relative path starts at the data directory, as those below.
    #: ``trialTlsCertificate``, ``NNI_MANAGER_TRIAL_TLS_CERTIFICATE``.
    trial_tls_certificate: str = ""
    #: Its key, PEM. ``trialTlsKey``, ``NNI_MANAGER_TRIAL_TLS_KEY``.
    trial_tls_key: str = ""
    #: What runners trust beside their own machine's authorities, PEM file; empty: the certificate.
    #: ``trialTlsAuthority``, ``NNI_MANAGER_TRIAL_TLS_AUTHORITY``.
    trial_tls_authority: str = ""
    #: Where runners reach the trial listener, when that is a proxy in front of it; empty: its own address.
    #: ``trialUrl``, ``NNI_MANAGER_TRIAL_URL``.
    trial_url: str = ""
    #: What clients of the service must show; empty: nothing. ``token``, ``NNI_MANAGER_TOKEN``.
    token: str = field(default="", repr=False)
    #: Users of this machine, by id, that need no token where none is set, besides our own and root; True: all.
    #: ``allowLocalUsers``, ``NNI_MANAGER_ALLOW_LOCAL_USERS``.
    allow_local_users: bool | frozenset[int] = False
    #: Seconds after which a tuner's call is reported with its stack. ``tunerPatience``, ``NNI_MANAGER_TUNER_PATIENCE``.
    tuner_patience_s: float = 60.0
    #: Seconds between two looks at what nobody told us about. ``safetyPoll``, ``NNI_MANAGER_SAFETY_POLL``.
    safety_poll_s: float = 30.0
    #: fatal, error, warning, info, debug or trace. ``logLevel``, ``NNI_MANAGER_LOG_LEVEL``.
    log_level: str = "info"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Setting:
    #: Attribute of `Settings`, and the name that the command line passes.
    attribute: str
    #: Name of the field in the file.
    name: str
    parse: scalars.Parse

    @property
    def variable(self) -> str:
        return SETTINGS_PREFIX + self.attribute.removesuffix("_s").upper()


def _interval(raw: object) -> float:
    return float(scalars.seconds(scalars.duration(raw)))


def _token(raw: object) -> str:
    return parse_token(scalars.text(raw))


#: Settings that are taken from the environment as they are; others are read as YAML does.
_TEXTS = (scalars.text, _token)
_SETTINGS = (
    _Setting(attribute="host", name="host", parse=scalars.text),
    _Setting(attribute="port", name="port", parse=scalars.whole_number(0, 65535)),
    _Setting(attribute="trial_host", name="trialHost", parse=scalars.text),
    _Setting(attribute="trial_port", name="trialPort", parse=scalars.whole_number(0, 65535)),
    _Setting(attribute="trial_tls_certificate", name="trialTlsCertificate", parse=scalars.text),
    _Setting(attribute="trial_tls_key", name="trialTlsKey", parse=scalars.text),
    _Setting(attribute="trial_tls_authority", name="trialTlsAuthority", parse=scalars.text),
    _Setting(attribute="trial_url", name="trialUrl", parse=scalars.text),
    _Setting(attribute="token", name="token", parse=_token),
    _Setting(attribute="allow_local_users", name="allowLocalUsers", parse=local_users),
    _Setting(attribute="tuner_patience_s", name="tunerPatience", parse=_interval),
    _Setting(attribute="safety_poll_s", name="safetyPoll", parse=_interval),
    _Setting(attribute="log_level", name="logLevel", parse=scalars.log_level),
)


def load(arguments: Mapping[str, object], environment: Mapping[str, str]) -> Settings:
    """The settings of the daemon, from the command line, the environment and the file.

    `arguments` are the command line's, checked by it, by attribute of `Settings`; None means not given. An empty
    variable counts as not set, and so does a missing file.

    Raises ConfigInvalid with all problems.
    """
    directory = Path(os.path.realpath(os.path.expanduser(_data_directory(arguments, environment))))
    given = {name: value for name, value in arguments.items() if value is not None and name != "data_dir"}
    values = _from_file(directory / FILE) | _from_environment(environment) | given
    return Settings(data_dir=directory, **values)  # type: ignore[arg-type]  # each is checked where it was read


def runtime_directory(environment: Mapping[str, str], temporary: Path = TEMPORARY) -> Path:
    """The folder of our sockets, made when missing: ``$XDG_RUNTIME_DIR/nni-manager``, else one below `temporary`.

    Raises InvalidInput when it is not a folder of ours, as somebody else could then speak to the daemon.
    """
    base = environment.get("XDG_RUNTIME_DIR", "")
    directory = Path(base, "nni-manager") if os.path.isdir(base) else temporary / f"nni-manager-{os.getuid()}"
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
        _make_private(directory)
    except OSError as error:
        raise InvalidInput(f"{directory} cannot be made or used: {error.strerror}; set XDG_RUNTIME_DIR") from None
    return directory


def _make_private(directory: Path) -> None:
    status = directory.lstat()  # a symbolic link is somebody's trick
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise InvalidInput(f"{directory} is not a folder of this user; remove it, or set XDG_RUNTIME_DIR")
    if stat.S_IMODE(status.st_mode) != 0o700:
        directory.chmod(0o700)


def _data_directory(arguments: Mapping[str, object], environment: Mapping[str, str]) -> str:
    return str(arguments.get("data_dir") or environment.get(DATA_VARIABLE) or DEFAULT_DATA_DIRECTORY)


def _from_environment(environment: Mapping[str, str]) -> dict[str, object]:
    values: dict[str, object] = {}
    problems = []
    for setting in _SETTINGS:
        if text := environment.get(setting.variable):
            try:
                values[setting.attribute] = setting.parse(text if setting.parse in _TEXTS else plain_value(text))
            except ValueError as error:
                problems.append(Problem(message=str(error), field=setting.variable, file="environment"))
    if problems:
        raise ConfigInvalid(problems)
    return values


def _from_file(path: Path) -> dict[str, object]:
    if not os.path.lexists(path):
        return {}
    from nni_manager.config.reading import yaml_reader  # the YAML library, only where there is a file to read

    document = yaml_reader.read(read_text(str(path)), str(path))
    source = Source(directory=str(path.parent), file=str(path), document=document)
    fields = document.root.value
    if not isinstance(fields, dict | None):
        source.refuse((), f"must be a mapping of settings to values, not {scalars.kind(fields)}")
    section = Section(fields if isinstance(fields, dict) else {}, [s.name for s in _SETTINGS], (), source)
    values = {setting.attribute: section.take(setting.name, setting.parse) for setting in _SETTINGS}
    source.check()
    return {name: value for name, value in values.items() if value is not None}


def own_environment() -> dict[str, str]:
    """The environment of experiments whose creator names none: the daemon's own.

    It lacks the daemon's settings and token, which trials must not have.
    """
    return without_settings(os.environ)
