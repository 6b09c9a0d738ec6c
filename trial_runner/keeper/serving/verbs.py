"""The verbs of the wire contract that a connection may request, one method each; and facts about the machine."""

import base64
import os
import time
from typing import Any, Callable, Dict, List

from trial_runner import protocol
from trial_runner.keeper.code import copying
from trial_runner.keeper.code.preparing import Preparing
from trial_runner.keeper.jobs import attempt_folder
from trial_runner.keeper.jobs.beginning import Adoption, Spawn
from trial_runner.keeper.jobs.ending import Ending
from trial_runner.keeper.jobs.gpus import Gpus
from trial_runner.keeper.jobs.job import Jobs, Saving
from trial_runner.keeper.outboxes.outbox_follower import Follow
from trial_runner.keeper.serving import requests
from trial_runner.keeper.serving.requests import Message, Refusal, SpawnRequest, system_refusal

#: These change nothing, so they need not wait for jobs that are being started.
READING = ("hello", "list", "read", "files", "facts")

_READ_LIMIT = 1024 * 1024

Send = Callable[[Message], None]


class Verbs:
    """Answers requests, one at a time; GPU readings later, when they are available."""

    def __init__(
        self,
        jobs: Jobs,
        spawn: Spawn,
        adoption: Adoption,
        follow: Follow,
        ending: Ending,
        saving: Saving,
        gpus: Gpus,
        boot_id: str,
    ) -> None:
        self._jobs = jobs
        self._spawn = spawn
        self._adoption = adoption
        self._follow = follow
        self._ending = ending
        self._saving = saving
        self._gpus = gpus
        self.preparing: Preparing
        self._verbs: Dict[str, Callable[[Message], Dict[str, Any]]] = {
            "hello": lambda _: {"version": protocol.VERSION, "pid": os.getpid(), "boot_id": boot_id},
            "list": self._list,
            "spawn": self._spawn_job,
            "follow": self._follow_jobs,
            "adopt": self._adopt,
            "signal": self._signal,
            "read": self._read,
            "files": lambda message: attempt_folder.names(requests.folder(message, "attempt_directory")),
            "forget": self._forget,
            "facts": lambda _: read_facts(),
            "put": copying.put,
        }

    def answer(self, message: Message, send: Send) -> None:
        """Answers a request. Never raises errors caused by a request."""
        try:
            result = self._verb(message)(message)
            if message.get("verb") == "facts" and "gpus" in message:
                max_age_s = requests.seconds(message, "gpus")
                self._gpus.read(max_age_s, lambda reading: _send_result(message, dict(result, gpus=reading), send))
            else:
                _send_result(message, result, send)
            return
        except Refusal as refusal:
            reason = refusal
        except OSError as error:
            reason = system_refusal(error, "The request")
        send({"id": message.get("id"), "error": {"kind": reason.kind, "message": reason.message}})

    def _verb(self, message: Message) -> Callable[[Message], Dict[str, Any]]:
        verb = message.get("verb")
        found = self._verbs.get(verb) if isinstance(verb, str) else None
        if found is None:
            known = ", ".join(sorted(self._verbs))
            raise Refusal(protocol.INVALID, "Unknown verb {!r}: use one of {}.".format(verb, known))
        return found

    def _list(self, message: Message) -> Dict[str, Any]:
        jobs = self.preparing.describe()
        jobs.update({job.name: job.describe() for job in self._jobs.all()})
        return {"jobs": jobs}

    def _spawn_job(self, message: Message) -> Dict[str, Any]:
        request = requests.spawn_request(message)
        job = self._jobs.get(request.name)
        if job is None:
            described = self.preparing.follow(request.name)
            job = self._adoption.earlier(request, self._spawn) if described is None else None
            if job is None:
                return described or self._begin(request, message)
        if not job.is_followed:
            self._follow.begin(job, request.offsets)
        return job.describe()

    def _begin(self, request: SpawnRequest, message: Message) -> Dict[str, Any]:
        return self.preparing.begin(request, message["code"]) if "code" in message else self.start(request, True)

    def start(self, request: SpawnRequest, is_followed: bool) -> Dict[str, Any]:
        """Starts a job when everything is in place; returns its description. Raises Refusal."""
        job = self._spawn.start(request)
        self._jobs.add(job)
        self._saving.save(job)
        self._follow.add(job)
        self._ending.watch(job)
        job.outboxes.rewind(request.offsets)
        job.is_followed = is_followed
        return job.describe()

    def _follow_jobs(self, message: Message) -> Dict[str, Any]:
        jobs: Dict[str, Any] = {}
        unknown: List[str] = []
        for name, offsets in requests.jobs(message).items():
            job = self._jobs.get(name)
            waiting = self.preparing.follow(name, offsets) if job is None else None
            if job is not None:
                self._follow.begin(job, offsets)
                jobs[name] = job.describe()
            elif waiting is not None:
                jobs[name] = waiting
            else:
                unknown.append(name)
        return {"jobs": jobs, "unknown": unknown}

    def _adopt(self, message: Message) -> Dict[str, Any]:
        """Adopts a running job without a record; returns its description, empty without one."""
        request = requests.adoption(message)
        if self._jobs.get(request.name) is None and self._adoption.running(request, self._spawn) is None:
            return {}
        job = self._jobs.get(request.name)
        assert job is not None, "it is known, or was just adopted"
        self._follow.begin(job, request.offsets)
        return job.describe()

    def _signal(self, message: Message) -> Dict[str, Any]:
        name = requests.name(message)
        job = self._jobs.get(name)
        if job is None:
            self.preparing.end(name)
        elif job.end is None:
            self._ending.terminate(job, requests.grace_s(message, job.claim.grace_s))
        return {}

    def _read(self, message: Message) -> Dict[str, Any]:
        folder = requests.folder(message, "attempt_directory")
        offset, limit = requests.whole(message, "offset", 0), requests.count(message, "limit", _READ_LIMIT)
        found = attempt_folder.read(folder, requests.text(message, "file"), offset, limit)
        found["data"] = base64.b64encode(found["data"]).decode()
        return found

    def _forget(self, message: Message) -> Dict[str, Any]:
        for name in requests.names(message):
            job = self._jobs.get(name)
            if job is None:
                self.preparing.end(name)
            elif job.is_over:
                attempt_folder.mark_forgotten(job.claim.present_directory)  # before its record is removed
                self._saving.forget(job)
                self._follow.remove(job)
                self._jobs.remove(job)
        return {}


def _send_result(message: Message, result: Dict[str, Any], send: Send) -> None:
    send({"id": message.get("id"), "result": result})


def read_facts() -> Dict[str, Any]:
    """The facts of this machine: bytes, counts, loads of 1, 5, 15 minutes; the keeper's disk. Raises OSError."""
    disk = os.statvfs(os.curdir)
    memory = _memory()
    return {
        "cpu_count": len(os.sched_getaffinity(0)),
        "memory_bytes": memory.get("MemTotal"),
        "memory_available_bytes": memory.get("MemAvailable"),
        "load": list(os.getloadavg()),
        "disk_bytes": disk.f_frsize * disk.f_blocks,
        "disk_free_bytes": disk.f_frsize * disk.f_bavail,
        "keeper_cpu_s": time.process_time(),
    }


def _memory() -> Dict[str, int]:
    with open("/proc/meminfo", encoding="ascii") as file:
        entries = (line.split() for line in file)
        return {entry[0].rstrip(":"): int(entry[1]) * 1024 for entry in entries if len(entry) == 3}
