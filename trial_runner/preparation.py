"""What comes before the command: the version, the code, the parameters. Nothing runs yet, so this simply waits."""

import json
import os
import platform
import socket
import time
from typing import Any, Callable, Dict, Optional, TypeVar

from trial_runner import code_archive, protocol
from trial_runner.backoff import Backoff
from trial_runner.client import Client, Denied, Unavailable
from trial_runner.settings import AUTO, Settings
from trial_runner.wire import foreign_files

#: Seconds after which a runner that may choose stops trying to reach the manager and lets itself be read.
_PROBE_S = 15.0
_ARCHIVE = ".code.tar.gz"

_Answer = TypeVar("_Answer")


def greeting(channel: str, container: str, outboxes: Dict[str, int]) -> Dict[str, Any]:
    """The body of the version post. `outboxes`: bytes of each that this container found when it started."""
    return {
        "container": container,
        "outboxes": outboxes,
        "version": protocol.VERSION,
        "python": platform.python_version(),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "channel": channel,
    }


class Preparation:
    """Each step raises Unavailable once its patience is over, Denied, Refused, Fenced, BadArchive and OSError."""

    def __init__(
        self, settings: Settings, client: Client, container: str, outboxes: Dict[str, int], say: Callable[[str], None]
    ) -> None:
        self._settings = settings
        self._client = client
        self._greeting = greeting(protocol.PUSH, container, outboxes)
        self._say = say

    def greet(self) -> None:
        """Raises Unavailable early when the runner may let itself be read instead."""
        can_be_read = self._settings.channel == AUTO and os.path.exists(self._parameter_file)
        patience_s = min(_PROBE_S, self._settings.drain_s) if can_be_read else self._settings.drain_s
        self._until_answered(lambda: self._client.post("version", self._greeting), patience_s)

    def fetch_code(self) -> None:
        """Into the code folder, which exists afterwards."""
        os.makedirs(self._settings.code_dir, exist_ok=True)
        archive = os.path.join(self._settings.system_dir, _ARCHIVE)
        if self._until_answered(lambda: self._unpack_code(archive)):
            os.unlink(archive)

    def _unpack_code(self, archive: str) -> bool:
        """False when there is none. Who stands between may have let half of it pass."""
        is_there = self._client.download("code", archive)
        try:
            if is_there:
                code_archive.unpack(archive, self._settings.code_dir)
        except code_archive.DamagedArchive as error:
            raise Unavailable(str(error).rstrip(".")) from error
        return is_there

    def fetch_parameters(self) -> None:
        """Into the file that SDKs read."""
        record = self._until_answered(lambda: self._client.get("parameters"))
        foreign_files.write_whole(*os.path.split(self._parameter_file), data=json.dumps(record).encode(), mode=0o666)

    def stored_outboxes(self) -> Dict[str, int]:
        """Bytes that the manager has of each outbox of this folder: another container may have served this attempt."""
        stored = self._until_answered(lambda: self._client.get("outboxes"))
        return {name: size for name, size in stored.items() if isinstance(size, int)}

    @property
    def _parameter_file(self) -> str:
        return os.path.join(self._settings.system_dir, protocol.PARAMETER_FILE)

    def _until_answered(self, ask: Callable[[], _Answer], patience_s: Optional[float] = None) -> _Answer:
        deadline = time.monotonic() + (self._settings.drain_s if patience_s is None else patience_s)
        backoff = Backoff()
        while True:
            try:
                return ask()
            except Unavailable as error:
                wait = backoff.next_wait() if error.retry_after is None else error.retry_after
                if time.monotonic() + wait > deadline or (isinstance(error, Denied) and error.status != 404):
                    raise
                self._say("{}; trying again".format(error))
            time.sleep(wait)
