"""A keeper's life: one per directory, one connection at a time; it ends without jobs and without a connection."""

import os
import signal
import socket
import time
from collections import deque
from typing import Callable, Deque, Optional

from trial_runner import processes
from trial_runner.keeper.code import copying
from trial_runner.keeper.code.background import BackgroundWork
from trial_runner.keeper.code.preparing import Preparing
from trial_runner.keeper.jobs.beginning import Adoption, Spawn
from trial_runner.keeper.jobs.ending import Ending
from trial_runner.keeper.jobs.files import JOBS, LOG, Log, StateFiles, is_home_deleted
from trial_runner.keeper.jobs.gpus import Gpus
from trial_runner.keeper.jobs.job import Job, Jobs, Saving
from trial_runner.keeper.outboxes.outbox_follower import Follow
from trial_runner.keeper.serving.listener import Connection, Listener
from trial_runner.keeper.serving.requests import Message, Refusal, fault
from trial_runner.keeper.serving.verbs import READING, Verbs
from trial_runner.loop import Loop, Timer

#: Number of processes that unpack and copy code, and that remove: more would only slow each other down.
_MOST_COPYING = 2
_MOST_REMOVING = 2
#: Seconds that a keeper without jobs waits for a connection before it ends.
_LINGER_S = 0.05
#: The same before the first connection, as the starting process may be slow.
_FIRST_LINGER_S = 5.0
#: Seconds between two checks for its folder, in a period without new or ended connections.
_HOME_LOOK_S = 30.0


class Server:
    """Created in `directory`, which must be the working directory. `job_umask`: initial umask of jobs."""

    def __init__(self, directory: str, socket_path: str, job_umask: int) -> None:
        self._log = Log(LOG)
        self._loop = Loop(self._log.error)
        boot_id = processes.boot_id()
        state_files = StateFiles(JOBS)
        #: Path of the state files, in case a copy of the deleted folder is restored.
        self._jobs_folder = os.path.join(directory, JOBS)
        self._is_homeless = False
        self._jobs = Jobs()
        self._saving = Saving(self._loop, state_files, self._log)
        self._ending = Ending(self._loop, self._jobs, self._saving)
        self._follow = Follow(self._loop, self._jobs, self._log)
        spawn = Spawn(state_files, boot_id, job_umask, self._log.write)
        gpus = Gpus(self._loop, self._jobs, self._log.write)
        adoption = Adoption(self._jobs, self._follow, self._ending, self._saving, state_files, self._log)
        self._verbs = Verbs(self._jobs, spawn, adoption, self._follow, self._ending, self._saving, gpus, boot_id)
        self._copying = BackgroundWork(self._loop, _MOST_COPYING)
        self._removing = BackgroundWork(self._loop, _MOST_REMOVING)
        self._copying.on_done = self._removing.on_done = self._end_if_unneeded
        self._preparing = self._verbs.preparing = Preparing(
            copying.Unpacking(self._copying), self._verbs.start, self._send, self._queue
        )
        self._listener = Listener(self._loop, socket_path, self._on_accept)
        self._connection: Optional[Connection] = None
        self._waiting: Deque[Callable[[], None]] = deque()
        self._linger: Optional[Timer] = None
        self._ending.drain = self._follow.drain
        self._ending.on_end = self._on_end
        self._saving.on_saved = self._end_if_unneeded
        adoption.run(boot_id)

    def open(self) -> None:
        """Listens. Raises OSError."""
        self._listener.open()
        self._loop.watch_signals((signal.SIGCHLD, signal.SIGTERM, signal.SIGUSR1), self._on_signals)
        self._end_if_unneeded(_FIRST_LINGER_S)
        self._loop.call_later(_HOME_LOOK_S, self._look_later)
        self._log.write("listening; {} jobs known".format(len(list(self._jobs.all()))))

    def run(self) -> None:
        """Returns when the keeper is not needed any more, or received SIGTERM. Jobs continue."""
        self._loop.run()
        self._saving.retry()
        self._listener.close()
        self._log.write("ending; {} jobs running".format(len(self._jobs.running())))

    def _on_signals(self, numbers: bytes) -> None:
        if signal.SIGTERM in numbers:
            self._loop.stop()
        if signal.SIGUSR1 in numbers and not self._is_homeless:
            self._listener.reopen()
        if signal.SIGCHLD in numbers:
            self._ending.child_changed()

    def _on_accept(self, sock: socket.socket) -> None:
        self._look_at_home()
        if self._is_homeless:  # a new client means another folder of the same name
            sock.close()
            return
        if self._connection is not None:
            self._connection.close("another connection took its place")
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
        connection = self._connection = Connection(self._loop, sock)
        connection.on_message = lambda message: self._on_message(connection, message)
        connection.on_room = self._follow.ship
        connection.on_close = self._on_close
        self._follow.connect(connection)

    def _on_close(self, reason: str) -> None:
        self._log.write("connection closed: {}".format(reason))
        self._connection = None
        self._follow.disconnect()
        self._preparing.disconnect()
        self._look_at_home()
        self._end_if_unneeded()

    def _on_message(self, connection: Connection, message: Message) -> None:
        """Requests keep their order, except that read-only ones overtake jobs that wait for their start."""
        if message.get("verb") in READING:
            self._answer(connection, message)
        elif message.get("verb") == "remove":
            self._remove(connection, message)
        else:
            self._queue(lambda: self._answer(connection, message))

    def _remove(self, connection: Connection, message: Message) -> None:
        """Removes a folder in the background, then answers."""

        def answer(refusal: Optional[Refusal]) -> None:
            done: Message = {"id": message.get("id"), "result": {}}
            connection.send(done if refusal is None else _refused(message, refusal))

        try:
            copying.remove(self._copying, self._removing, message, answer)
        except Refusal as refusal:
            connection.send(_refused(message, refusal))

    def _send(self, message: Message) -> None:
        if self._connection is not None:
            self._connection.send(message)

    def _queue(self, answer: Callable[[], None]) -> None:
        self._waiting.append(answer)
        if len(self._waiting) == 1:
            self._loop.call_soon(self._next)

    def _next(self) -> None:
        """Answers the oldest request; one in each turn of the loop, as a start blocks everything for 1 ms."""
        answer = self._waiting[0]
        try:
            answer()
        finally:
            self._waiting.popleft()
            if self._waiting:
                self._loop.call_soon(self._next)

    def _answer(self, connection: Connection, message: Message) -> None:
        # requests of a closed connection are dropped: its owner repeats them on the next one
        if not connection.is_open:
            return
        is_spawn = message.get("verb") == "spawn"

        def answer(done: Message) -> None:
            _send(done, connection, is_spawn=is_spawn)
            if is_spawn and "error" in done:  # perhaps the folder is gone, and another keeper is to take the job
                self._look_at_home()

        try:
            self._verbs.answer(message, answer)
        except Exception as error:
            self._log.error(error)
            connection.send(_refused(message, fault(error)))

    def _on_end(self, job: Job) -> None:
        self._follow.end(job)
        self._end_if_unneeded()

    def _look_later(self) -> None:
        self._look_at_home()
        self._loop.call_later(_HOME_LOOK_S, self._look_later)

    def _look_at_home(self) -> None:
        """Checks whether the keeper's folder was deleted: its jobs have no record then, and none can start."""
        if not self._is_homeless and is_home_deleted():
            self._log.write("its folder was deleted; {} jobs running".format(len(self._jobs.running())))
            self._is_homeless = True
            self._listener.close()
            self._end_if_unneeded()
        if self._is_homeless and self._connection is None:
            for job in self._jobs.running():
                # if a copy with this job is restored, a keeper that starts there adopts the job
                if not os.path.exists(os.path.join(self._jobs_folder, job.name + ".jsonl")):
                    self._ending.terminate(job, job.claim.grace_s)

    def _is_needed(self) -> bool:
        if self._jobs.running() or not self._saving.is_done or len(self._preparing):
            return True
        if self._copying.count or self._removing.count:
            return True
        return self._connection is not None and not self._is_homeless

    def _end_if_unneeded(self, linger_s: float = _LINGER_S) -> None:
        if self._linger is None and not self._is_needed():
            self._linger = self._loop.call_later(linger_s, self._end)

    def _end(self) -> None:
        self._linger = None
        if not self._is_needed() and self._listener.close_unless_asked():
            self._loop.stop()


def _send(answer: Message, connection: Connection, *, is_spawn: bool) -> None:
    """Delays the answer that a job runs, with its age then: a job that ends in a moment is reported in one message."""
    job = answer.get("result", {}) if is_spawn else {}
    age_ms, begun_s = job.get("started_ago_ms"), time.monotonic()
    if age_ms is None:
        connection.send(answer)
        return

    def aged() -> Message:
        job["started_ago_ms"] = age_ms + round(1000 * (time.monotonic() - begun_s))
        return answer

    connection.send_late(aged)


def _refused(message: Message, refusal: Refusal) -> Message:
    return {"id": message.get("id"), "error": {"kind": refusal.kind, "message": refusal.message}}
