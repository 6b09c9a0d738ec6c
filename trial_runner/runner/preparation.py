"""The command's environment: the runner's own, without the runner's settings, plus the trial's."""

import base64
import json
import os
import socket
import sys
import time
import zipimport
from contextlib import ExitStack
from typing import Any, Callable, Dict, List, Mapping, Optional, TypeVar

from trial_runner import protocol
from trial_runner.launch import PROGRAM
from trial_runner.runner.client import RETRY_WAITS_S, Client, Denied, Refused, Unavailable
from trial_runner.runner.settings import AUTO, Settings
from trial_runner.wire import code_archive, foreign_files, removal
from trial_runner.wire.backoff import Backoff
from trial_runner.wire.runner_archive import STAND_IN_FILE

_RUNNERS_OWN = (
    protocol.ENV_TOKEN,
    protocol.ENV_MANAGER_URL,
    protocol.ENV_MANAGER_CA,
    protocol.ENV_COMMAND,
    protocol.ENV_GRACE_S,
    protocol.ENV_REPORTER,
    protocol.ENV_ROLE,
    protocol.ENV_CHANNEL,
    protocol.ENV_CODE,
    protocol.ENV_CODE_ARCHIVE,
    protocol.ENV_CODE_SHA256,
    protocol.ENV_RECORD,
    protocol.ENV_DRAIN_S,
    protocol.ENV_PIECES,
    protocol.ENV_TEMPORARY,
)


def of_command(environment: Mapping[str, str], settings: Settings, stand_in: str) -> Dict[str, str]:
    """PYTHONPATH with the stand-in last: a real `nni` comes before it."""
    kept = {name: value for name, value in environment.items() if name not in _RUNNERS_OWN}
    kept.update(
        {
            protocol.ENV_SYSTEM_DIR: settings.system_dir,
            protocol.ENV_OUTPUT_DIR: settings.output_dir,
            protocol.ENV_CODE_DIR: settings.code_dir,
            protocol.ENV_CHECKPOINT_DIR: settings.checkpoint_dir,
            protocol.ENV_OUTBOX: os.path.join(settings.system_dir, protocol.MAIN_OUTBOX),
            protocol.ENV_COMMAND_CHANNEL: protocol.COMMAND_CHANNEL,
            protocol.ENV_JOB: "{}:runner:{}".format(settings.job_name, os.urandom(6).hex()),
            "PYTHONPATH": os.pathsep.join(filter(None, (environment.get("PYTHONPATH"), stand_in))),
        }
    )
    return kept


def provide(clean_up: ExitStack, system_dir: str) -> str:
    """A path for PYTHONPATH; `clean_up` removes created files, in the only folder that is surely writable.

    Raises OSError.
    """
    folder = os.path.join(PROGRAM, "trial_runner", "stand_in")
    if os.path.isdir(folder):
        return folder
    made = os.path.join(system_dir, ".stand-in-{}".format(os.urandom(6).hex()))
    os.mkdir(made, 0o700)
    clean_up.callback(removal.remove, made)
    files = json.loads(zipimport.zipimporter(PROGRAM).get_data(os.path.join(PROGRAM, STAND_IN_FILE)).decode())
    for name, text in files.items():
        path = os.path.join(made, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    return made


#: Seconds after which a choosing runner stops trying to reach the manager and lets itself be read: from storage, whose
#: results arrive late, or by commands in its container, which cost little.
_PROBE_S = 15.0
_PROBE_BEFORE_EXEC_S = 5.0
#: Seconds for which the answer to the registration says whether the job is cancelled.
_FRESH_S = 1.0
_ARCHIVE = ".code.tar.gz"

_Answer = TypeVar("_Answer")


def registration(channel: str, container: str, outboxes: Dict[str, int]) -> Dict[str, Any]:
    """The body of the version post. `outboxes`: sizes that this container found when it started."""
    return {
        "container": container,
        "outboxes": outboxes,
        "version": protocol.VERSION,
        "python": sys.version.split()[0],
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "channel": channel,
    }


class Preparation:
    """Each step raises Unavailable when its patience is over, Denied, Refused, Fenced, BadArchive and OSError.

    `clients`: of the manager's addresses; only the one that answers is kept.
    """

    def __init__(
        self,
        settings: Settings,
        clients: List[Client],
        container: str,
        outboxes: Dict[str, int],
        say: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._parameter_file = os.path.join(settings.system_dir, protocol.PARAMETER_FILE)
        self._clients = clients
        self._registration = registration(protocol.PUSH, container, outboxes)
        self._registration[protocol.INLINE_CODE] = settings.is_code_fetched
        self._say = say
        #: The answer to the registration, which may contain the next answers.
        self._answer: Dict[str, Any] = {}
        self._answered_at = 0.0

    def register(self) -> None:
        """Raises Unavailable early if the runner may let itself be read instead."""
        patience_s = self._settings.drain_s
        if self._settings.channel == AUTO and os.path.exists(self._parameter_file):
            patience_s = min(_PROBE_S, patience_s)
        elif self._settings.channel == protocol.PUSH_OR_EXEC:
            patience_s = min(_PROBE_BEFORE_EXEC_S, patience_s)
        self._until_answered(self._register_somewhere, patience_s)

    def _register_somewhere(self) -> None:
        """Registers at each address in turn, until the manager answers at one, even with a refusal."""
        errors = []
        for client in self._clients:
            try:
                self._answer = client.post("version", self._registration)
            except Denied:
                raise
            except Unavailable as error:
                errors.append(error)
            else:
                client.takes_together = self._answer.get(protocol.TOGETHER) is True
                self._clients[:] = [client]
                self._answered_at = time.monotonic()
                return
        raise Unavailable("; ".join(map(str, errors)), errors[0].retry_after, errors[0].status)

    def fetch_code(self) -> None:
        """Gets the code into the code folder, which exists afterwards."""
        os.makedirs(self._settings.code_dir, exist_ok=True)
        if self._answer.get("hasCode") is False:
            return
        archive = os.path.join(self._settings.system_dir, _ARCHIVE)
        if self._unpack_inline(archive):
            return
        if self._until_answered(lambda: self._unpack_code(archive)):
            os.unlink(archive)

    def _unpack_inline(self, archive: str) -> bool:
        """False if the registration's answer contains no complete code."""
        inline = self._answer.pop(protocol.INLINE_CODE, None)
        try:
            data = base64.b64decode(inline, validate=True) if isinstance(inline, str) else b""
            if data:
                foreign_files.write_whole(*os.path.split(archive), data=data)
                code_archive.unpack(archive, self._settings.code_dir)
                os.unlink(archive)
        except (ValueError, code_archive.DamagedArchive) as error:
            self._say("the code in the registration's answer is damaged; requesting it again: {}".format(error))
            return False
        return bool(data)

    def _unpack_code(self, archive: str) -> bool:
        """False if there is none. A proxy may have truncated it."""
        is_there = self._clients[0].download("code", archive)
        try:
            if is_there:
                code_archive.unpack(archive, self._settings.code_dir)
        except code_archive.DamagedArchive as error:
            raise Unavailable(str(error).rstrip(".")) from error
        return is_there

    def fetch_parameters(self) -> None:
        """Writes the parameters into the file that SDKs read."""
        record = self._answer.get("record")
        if not isinstance(record, dict):
            record = self._until_answered(lambda: self._clients[0].get("parameters"))
        foreign_files.write_whole(*os.path.split(self._parameter_file), data=json.dumps(record).encode(), mode=0o666)

    def stored_outboxes(self) -> Dict[str, int]:
        """Bytes that the manager has of each outbox of this folder: another container may have served this attempt."""
        stored = self._answer.get("stored")
        if not isinstance(stored, dict):
            stored = self._until_answered(lambda: self._clients[0].get("outboxes"))
        return {name: size for name, size in stored.items() if isinstance(size, int)}

    def must_stop(self) -> bool:
        """Whether the manager has cancelled the job. It is asked again if preparing took long; then an answer that does
        not come delays nothing."""
        if time.monotonic() - self._answered_at < _FRESH_S:
            return self._answer.get("stop") is True
        try:
            answer = self._clients[0].post("heartbeat", {"reporter": self._settings.is_reporter})
        except (Unavailable, Refused):
            return False
        return answer.get("stop") is True

    def _until_answered(self, ask: Callable[[], _Answer], patience_s: Optional[float] = None) -> _Answer:
        deadline = time.monotonic() + (self._settings.drain_s if patience_s is None else patience_s)
        backoff = Backoff(RETRY_WAITS_S, least=0.5)
        while True:
            try:
                return ask()
            except Unavailable as error:
                wait = backoff.next_wait() if error.retry_after is None else error.retry_after
                if time.monotonic() + wait > deadline or (isinstance(error, Denied) and error.status != 404):
                    raise
                self._say("{}; trying again".format(error))
            time.sleep(wait)


#: Seconds to wait for files that the manager has just written to be visible here.
_STORAGE_PATIENCE_S = 15.0
_STORAGE_LOOK_S = 0.2


def place_stored(environment: Mapping[str, str], system_dir: str, code_dir: str) -> None:
    """Copies code and parameters from mounted storage to their places, unless they exist. Raises BadArchive,
    OSError."""
    archive, record = environment.get(protocol.ENV_CODE_ARCHIVE), environment.get(protocol.ENV_RECORD)
    own = os.path.join(system_dir, protocol.PARAMETER_FILE)
    if record and not os.path.exists(own):
        _wait_for(record)
        import shutil  # seldom needed

        shutil.copyfile(record, own)
    if archive and not os.path.exists(code_dir):
        _wait_for(archive)
        draft = "{}.{}".format(code_dir.rstrip("/"), os.urandom(4).hex())
        os.makedirs(draft)
        code_archive.unpack(archive, draft, sha256=environment.get(protocol.ENV_CODE_SHA256, ""))
        os.rename(draft, code_dir)


def _wait_for(path: str) -> None:
    deadline = time.monotonic() + _STORAGE_PATIENCE_S
    while not os.path.exists(path):
        if time.monotonic() > deadline:
            raise FileNotFoundError(
                2, "it does not exist: the mounted storage is not the one that the manager has mounted", path
            )
        time.sleep(_STORAGE_LOOK_S)
