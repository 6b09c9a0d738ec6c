"""The run of one trial's command: the loop that starts it, watches it, delivers its reports, and ends it."""

import os
import signal
import socket
import traceback
from collections import deque
from contextlib import suppress
from typing import Any, Callable, Deque, Dict, List, Optional

from trial_runner import protocol
from trial_runner.inotify import Changes
from trial_runner.loop import Loop
from trial_runner.outboxes import Outboxes
from trial_runner.processes import Exit
from trial_runner.runner import ending
from trial_runner.runner.client import Client
from trial_runner.runner.command import LOOK_S, Claim, Evidence, Left, ProcessTree, now_ms
from trial_runner.runner.delivery import Delivery, Undelivered
from trial_runner.runner.output import Copy, Echo, File, LogFile, LogForward, Pieces
from trial_runner.runner.posts import Heartbeat, Status, Stream, hear_stop
from trial_runner.runner.results import OutboxForward, StdoutMetrics
from trial_runner.runner.settings import Settings
from trial_runner.wire.outbox_files import file_name


class Mailbox:
    """Wakes the loop."""

    def __init__(self, loop: Loop) -> None:
        self._calls: Deque[Callable[[], None]] = deque()
        reader, self._writer = os.pipe()
        for descriptor in (reader, self._writer):
            os.set_blocking(descriptor, False)
        loop.watch(reader, lambda _: self._open(reader))

    def put(self, call: Callable[[], None]) -> None:
        """Makes the loop call this; thread-safe."""
        self._calls.append(call)
        with suppress(BlockingIOError):  # the pipe is full, so the loop will wake anyway
            os.write(self._writer, b"!")

    def _open(self, reader: int) -> None:
        os.read(reader, 4096)
        for _ in range(len(self._calls)):
            self._calls.popleft()()


#: Seconds for the reader of the output to read the rest.
_ECHO_S = 10.0
#: Seconds for storage to remove temporary copies.
_PIECES_S = 10.0
#: Seconds for the manager to read in this container after its end was requested.
_READ_S = 10.0
_FORWARDED = (signal.SIGTERM, signal.SIGINT)


class Run:
    """`client`: None: nothing is posted, and the manager reads the folder, which then has our `claim`. With both, the
    manager may read what does not arrive.

    `stored`: see OutboxForward.
    """

    def __init__(
        self,
        settings: Settings,
        client: Optional[Client],
        stored: Dict[str, int],
        container: str,
        claim: Optional[Claim],
        notice: ending.EndingNotice,
        say: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._container = container
        self._claim = claim
        #: Another container of this attempt has taken over the folder.
        self._is_superseded = False
        #: The platform or user has requested the container's end.
        self._is_end_asked = False
        self._notice = notice
        self._say = say
        self._loop = Loop(self._on_fault)
        self._mailbox = Mailbox(self._loop)
        self._tree = ProcessTree(self._loop, self._on_tree_end)
        self._stdout, self._stderr = self._path(protocol.STDOUT_FILE), self._path(protocol.STDERR_FILE)
        self._printed = StdoutMetrics(self._stdout, self._path(protocol.STDOUT_METRICS_OUTBOX), say)
        self._printed.extract(False)
        self._undelivered = Undelivered(say)
        self._outboxes = Outboxes(settings.system_dir, self._undelivered.add)
        self._evidence: Optional[Evidence] = None
        #: Missing outboxes when the command had ended: a sentence, or empty.
        self._gone = ""
        self._started_ms = 0
        self._reports: Optional[OutboxForward] = None
        self._echo = Echo([Copy(self._stdout, 1), Copy(self._stderr, 2)])
        self._pieces = self._copy_to_pieces(settings)
        self._client = client
        self._is_delivery_over = False
        #: The manager closed the attempt before the command had ended.
        self._is_cut_off = False
        self._delivery = None if client is None else self._deliver(client, stored)

    def run(self, environment: Dict[str, str]) -> int:
        """The exit code of the whole. Raises OSError and ValueError if the command cannot start."""
        self._loop.watch_signals((signal.SIGCHLD, ending.SIGNAL, *_FORWARDED), self._on_signals)
        if self._notice.is_given:
            ending.note(self._settings, self._say)
        self._started_ms = now_ms()
        settings = self._settings
        self._tree.start(settings.command, settings.code_dir, environment, self._stdout, self._stderr)
        Changes(self._loop, self._folders, self._on_changed)
        self._echo.start()
        if self._pieces is not None:
            self._pieces.start()
        if self._delivery is not None:
            self._delivery.start()
        if self._claim is not None:
            self._loop.call_later(LOOK_S, self._look_at_claim)
        self._loop.run()
        if self._undelivered.sentences():
            self._write_evidence()  # more losses may be known by now
        self._echo.finish(_ECHO_S)
        if self._pieces is not None:
            self._pieces.finish(_PIECES_S)
        return self._exit_code()

    def _path(self, name: str) -> str:
        return os.path.join(self._settings.system_dir, name)

    def _folders(self) -> List[str]:
        metrics_folder = os.path.dirname(self._path(protocol.METRICS_FILE))
        outbox_folders = [self._path(folder) for folder in self._outboxes.folders()]
        return [self._settings.system_dir, self._settings.output_dir, metrics_folder, *outbox_folders]

    # Storage that shows only closed files

    def _copy_to_pieces(self, settings: Settings) -> Optional[Pieces]:
        """None if the folder is not read, or if open files in it are visible anyway."""
        if not settings.has_pieces or self._claim is None or settings.channel != protocol.PULL:
            return None
        return Pieces(settings.system_dir, self._container, self._held_files, self._say)

    def _held_files(self) -> List[File]:
        """Outboxes whose names need escaping are copied at the end."""
        found = [
            (os.path.basename(log.path), os.path.dirname(log.path)) for log in self._logs() if os.path.exists(log.path)
        ]
        outboxes = [name for name in self._outboxes.names() if file_name(name) == name]
        return found + [(name, self._settings.system_dir) for name in outboxes[: protocol.MOST_OUTBOXES]]

    # Delivery

    def _deliver(self, client: Client, stored: Dict[str, int]) -> Delivery:
        is_reporter = self._settings.is_reporter
        heartbeat = Heartbeat(is_reporter, self._on_stop)
        streams: List[Stream] = [heartbeat]
        if is_reporter:
            folder = self._settings.system_dir
            self._reports = OutboxForward(self._outboxes, folder, stored, self._undelivered)
            started = Status(self._started, lambda answer: self._begin(heartbeat, answer), self._say, 0)
            streams = [started, heartbeat, self._reports]
        source = "" if is_reporter else socket.gethostname()
        streams += [LogForward(file, source, self._undelivered) for file in self._logs()]
        drain_s, put = self._settings.drain_s, self._mailbox.put
        return Delivery(client, streams, drain_s, lambda: put(self._on_delivery_end), self._say)

    def _logs(self) -> List[LogFile]:
        return [
            LogFile(protocol.STDOUT_FILE, self._stdout),
            LogFile(protocol.STDERR_FILE, self._stderr),
            LogFile(protocol.TRIAL_LOG_FILE, os.path.join(self._settings.output_dir, protocol.TRIAL_LOG_FILE)),
        ]

    def _begin(self, heartbeat: Heartbeat, answer: Dict[str, Any]) -> None:
        heartbeat.begin(answer)
        hear_stop(answer, self._on_stop)

    def _started(self) -> Dict[str, Any]:
        return {"event": "started", "pid": self._tree.main_pid, "startedMs": self._started_ms, "nowMs": now_ms()}

    def _exited(self) -> Dict[str, Any]:
        assert self._evidence is not None, "the tree has ended"
        sizes = {} if self._reports is None else self._reports.sizes()
        return self._evidence.status(sizes, [*filter(None, (self._gone,)), *self._undelivered.sentences()])

    def _write_evidence(self) -> None:
        if self._evidence is not None and not self._is_superseded:
            logs = {log.name: log.size for log in self._logs()}
            left = Left(self._container, self._outboxes.sizes(), logs, self._undelivered.sentences(), self._gone)
            self._evidence.write(self._settings, left, self._say)

    # Events, in the loop's thread

    def _on_fault(self, error: Exception) -> None:
        stack = "".join(traceback.format_exception(type(error), error, error.__traceback__)).rstrip()
        self._say("runner error: " + stack)

    def _on_changed(self) -> None:
        self._printed.extract(False)
        self._echo.notice()
        if self._pieces is not None:
            self._pieces.notice()
        if self._delivery is not None:
            self._delivery.notice()
        if self._evidence is not None:
            self._stop_when_released()

    def _on_tree_end(self, exit_: Exit) -> None:
        self._printed.extract(True)
        self._gone = self._outboxes.gone()
        self._evidence = Evidence.of(self._settings.system_dir, exit_, self._tree.main_pid, self._started_ms)
        self._look_at_claim()
        self._write_evidence()
        if self._settings.channel == protocol.EXEC and self._settings.is_reporter and not self._is_superseded:
            wait_s = max(self._settings.grace_s, _READ_S) if self._is_end_asked else self._settings.drain_s
            self._loop.call_later(wait_s, self._loop.stop)
            self._stop_when_released()
        elif self._delivery is None or self._client is None or self._is_delivery_over:
            self._loop.stop()
        else:
            farewell = Status(self._exited, lambda answer: hear_stop(answer, self._on_stop), self._say, 1)
            self._delivery.finish(farewell if self._settings.is_reporter else None)
            self._stop_when_released()

    def _stop_when_released(self) -> None:
        """Waits until the manager has read everything, which it could not in an ended container."""
        if self._claim is not None and os.path.lexists(self._path(protocol.RELEASED_FILE)):
            self._loop.stop()

    def _look_at_claim(self) -> None:
        if self._claim is None or self._is_superseded or not self._claim.is_lost():
            if self._evidence is None and self._claim is not None:
                self._loop.call_later(LOOK_S, self._look_at_claim)
            return
        self._is_superseded = True
        self._say("Another container of this attempt has taken over its folder: ending this one.")
        self._tree.terminate(signal.SIGTERM, self._settings.grace_s)

    def _on_delivery_end(self) -> None:
        """Ends when everything is delivered, or the manager accepts no more."""
        self._is_delivery_over = True
        if self._evidence is not None:
            self._loop.stop()
        elif self._delivery is not None and self._delivery.is_fenced:
            # most processes next to the reporting one end on their own now; a nonzero exit would fail the job
            self._loop.call_later(0 if self._settings.is_reporter else self._settings.grace_s, self._cut_off)

    def _cut_off(self) -> None:
        if self._evidence is None:
            self._is_cut_off = True
            self._tree.terminate(signal.SIGTERM, self._settings.grace_s)

    def _on_signals(self, numbers: bytes) -> None:
        for number in _FORWARDED:
            if number in numbers:
                self._on_end_asked(number)
        if ending.SIGNAL in numbers:
            self._on_notice()
        if signal.SIGCHLD in numbers:
            self._tree.look()

    def _on_notice(self) -> None:
        if not self._notice.is_given:
            self._notice.is_given = True
            ending.note(self._settings, self._say)
        self._tree.tell(ending.SIGNAL)

    def _on_end_asked(self, number: int) -> None:
        self._is_end_asked = True
        self._tree.terminate(number, self._settings.grace_s)
        if self._evidence is not None:  # undelivered data gets the same time as a command
            self._loop.call_later(self._settings.grace_s, self._loop.stop)

    def _exit_code(self) -> int:
        if self._is_superseded or self._is_cut_off:
            return protocol.EXIT_FENCED if self._settings.is_reporter else 0
        assert self._evidence is not None, "the loop ends after the tree"
        return self._evidence.exit_code_of_runner

    # Events, in the delivering thread

    def _on_stop(self, grace_s: Optional[float]) -> None:
        seconds = self._settings.grace_s if grace_s is None else grace_s
        self._mailbox.put(lambda: self._tree.terminate(signal.SIGTERM, seconds))
