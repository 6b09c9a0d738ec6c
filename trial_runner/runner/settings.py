"""The runner's settings: its environment variables, the token, and which of a role's replicas this process is.

The token is removed before anything starts. The first replica of the reporting role reports, in the attempt's own
folder; every other one has a folder below it.
"""

import json
import math
import os
import re
import socket
from typing import Dict, Mapping, MutableMapping, NamedTuple, Tuple

from trial_runner import launch, processes, protocol


class Credential:
    """Neither `repr` nor `str` shows the token."""

    __slots__ = ("_token",)

    def __init__(self, token: str) -> None:
        """Raises BadSetting for characters that are not valid in a header."""
        if not token or not all("!" <= character <= "~" for character in token):
            raise BadSetting(
                "{} is not a token: use the one that the manager created for this attempt.".format(protocol.ENV_TOKEN)
            )
        self._token = token

    @property
    def manager(self) -> str:
        """Name of the manager that made the token; no secret."""
        return self._token.partition(".")[0]

    def headers(self) -> Dict[str, str]:
        return {"Authorization": "Bearer " + self._token}

    def __repr__(self) -> str:
        return "Credential(hidden)"


def take_credential(environment: MutableMapping[str, str]) -> Credential:
    """Removes the token, also where `/proc` shows the initial environment. Raises BadSetting."""
    if environment is os.environ:
        processes.forbid_inspection()
        launch.overwrite_variable(os.fsencode(protocol.ENV_TOKEN))
    return Credential(environment.pop(protocol.ENV_TOKEN, ""))


AUTO = "auto"
_CHANNELS = (AUTO, protocol.PUSH, protocol.PUSH_OR_EXEC, protocol.PULL, protocol.EXEC)

_GRACE_S = 5.0
_DRAIN_S = 600.0


def container_of(environment: Mapping[str, str]) -> str:
    """The identity of this container: that of the run of a Slurm job, or a random one."""
    job_id, restarts = environment.get("SLURM_JOB_ID", ""), environment.get("SLURM_RESTART_COUNT") or "0"
    if job_id.isdecimal() and restarts.isdecimal():
        return protocol.container_of_run(int(job_id), int(restarts))
    return os.urandom(8).hex()


class BadSetting(Exception):
    """The text names the variable and what to do; it never repeats a secret."""


class Settings(NamedTuple):
    """Folders are absolute paths without links: a later link is not followed."""

    #: Addresses of the manager, some may be unreachable; empty on the channels pull and exec.
    manager_urls: Tuple[str, ...]
    #: PEM; empty: only what the machine trusts.
    manager_ca: str
    #: Name of the job, for its mark and its exit file.
    job_name: str
    command: str
    grace_s: float
    is_reporter: bool
    #: auto, push, push-or-exec, pull or exec.
    channel: str
    is_code_fetched: bool
    system_dir: str
    output_dir: str
    code_dir: str
    #: Outlives the attempt, if set by the platform.
    checkpoint_dir: str
    drain_s: float
    #: The folder's storage shows files only after they are closed.
    has_pieces: bool


def read(environment: Mapping[str, str]) -> Settings:
    """The settings in an environment. Raises BadSetting."""
    system_dir = os.path.realpath(environment.get(protocol.ENV_SYSTEM_DIR) or "nni")
    channel = _choice(environment, protocol.ENV_CHANNEL, _CHANNELS)
    return Settings(
        manager_urls=_manager_urls(environment, channel),
        manager_ca=protocol.on_lines(environment.get(protocol.ENV_MANAGER_CA, "")),
        job_name=environment.get(protocol.ENV_JOB) or _documented_name(environment),
        command=_required(environment, protocol.ENV_COMMAND),
        grace_s=_seconds(environment, protocol.ENV_GRACE_S, _GRACE_S),
        is_reporter=_choice(environment, protocol.ENV_REPORTER, ("1", "0")) == "1",
        channel=channel,
        is_code_fetched=_choice(environment, protocol.ENV_CODE, ("fetch", "present")) == "fetch",
        system_dir=system_dir,
        output_dir=os.path.realpath(environment.get(protocol.ENV_OUTPUT_DIR) or system_dir),
        code_dir=os.path.abspath(
            environment.get(protocol.ENV_CODE_DIR) or os.path.join(system_dir, protocol.CODE_FOLDER)
        ),
        checkpoint_dir=os.path.realpath(
            environment.get(protocol.ENV_CHECKPOINT_DIR) or os.path.join(system_dir, protocol.CHECKPOINT_FOLDER)
        ),
        drain_s=_seconds(environment, protocol.ENV_DRAIN_S, _DRAIN_S),
        has_pieces=_choice(environment, protocol.ENV_PIECES, ("0", "1")) == "1",
    )


def _manager_urls(environment: Mapping[str, str], channel: str) -> Tuple[str, ...]:
    if channel in (protocol.PULL, protocol.EXEC):
        return ()
    urls = _required(environment, protocol.ENV_MANAGER_URL).split()
    for url in urls:
        if not url.startswith(("http://", "https://")):
            raise BadSetting(
                "{} is {!r}: use an address that begins with http:// or https://.".format(protocol.ENV_MANAGER_URL, url)
            )
    return tuple(url.rstrip("/") for url in urls)


def _documented_name(environment: Mapping[str, str]) -> str:
    names = (protocol.ENV_EXPERIMENT_ID, protocol.ENV_TRIAL_ID)
    return "nni_exp_{}_trial_{}".format(*(_required(environment, name) for name in names))


def _required(environment: Mapping[str, str], name: str) -> str:
    value = environment.get(name)
    if not value:
        raise BadSetting(
            "{} is not set: a platform of the manager starts the runner; do not start it by hand.".format(name)
        )
    return value


def _choice(environment: Mapping[str, str], name: str, choices: Tuple[str, ...]) -> str:
    """The value. The first choice is the default."""
    value = environment.get(name) or choices[0]
    if value not in choices:
        raise BadSetting("{} is {!r}: use one of {}.".format(name, value, ", ".join(choices)))
    return value


def _seconds(environment: Mapping[str, str], name: str, default: float) -> float:
    text = environment.get(name) or str(default)
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not (0 <= seconds and math.isfinite(seconds)):
        raise BadSetting("{} is {!r}: use a number of seconds, 0 or more.".format(name, text))
    return seconds


#: Variables of operators that number the processes of a role: PyTorchJob, FrameworkController, AdaptDL.
_NUMBERS = ("FC_TASK_INDEX", "ADAPTDL_REPLICA_RANK", "RANK")
_DEFAULT_FOLDER = "nni"


def settle_replica(environment: MutableMapping[str, str]) -> None:
    """Sets the reporting process and this process's folder in a job of several processes; otherwise no effect."""
    role = environment.get(protocol.ENV_ROLE)
    if not role:
        return
    index = _index(environment, role)
    if environment.get(protocol.ENV_REPORTER) != "0" and index == 0:
        return
    environment[protocol.ENV_REPORTER] = "0"
    for name in (protocol.ENV_SYSTEM_DIR, protocol.ENV_OUTPUT_DIR):
        folder = environment.get(name) or (_DEFAULT_FOLDER if name == protocol.ENV_SYSTEM_DIR else "")
        if folder:
            environment[name] = os.path.join(folder, protocol.REPLICAS_FOLDER, "{}-{}".format(role, index))


def _index(environment: Mapping[str, str], role: str) -> int:
    """The number of this replica within its role; 0: unknown."""
    try:
        task = json.loads(environment.get("TF_CONFIG") or "{}").get("task", {})
        if str(task.get("type", "")).lower() == role.lower():
            return int(task["index"])
    except (ValueError, TypeError, KeyError, AttributeError):
        pass  # the user's own, perhaps
    for variable in _NUMBERS:
        if environment.get(variable, "").isdigit():
            return int(environment[variable])
    found = re.search(r"-{}-(\d+)$".format(re.escape(role.lower())), socket.gethostname())
    return int(found.group(1)) if found else 0
