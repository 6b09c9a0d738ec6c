"""Folders of jobs on storage that is not mounted here: a copy on this machine, over the login of another one.

What jobs need is written to the copy and sent; what they write is read at intervals, for all followed jobs in one
command, and added to the copy. `trial_runner/folder_channel.py` is the other side.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nni_manager.domain.errors import BadCredentials, PlatformUnavailable
from nni_manager.machines.shell import Answer, Shell
from nni_manager.platform_kit.payload import write_private
from nni_manager.platform_kit.tasks import ended, happened
from nni_manager.platform_kit.threads import to_its_end
from trial_runner import protocol

log = logging.getLogger(__name__)

#: Maximum bytes of one reading.
_MOST_BYTES = 32 * 2**20
_READ_S, _SEND_S = 60.0, 600.0
_PROGRAM = Path(protocol.__file__).parent / "folder_channel.py"
#: Reports that are replaced as a whole.
_REPORTS = (protocol.RUNNER_FILE, protocol.EXIT_FILE)
_NO_PYTHON = 127


@dataclass(slots=True)
class _Mirrored:
    folder: str
    #: File → number of bytes in the copy.
    offsets: dict[str, int] = field(default_factory=dict)


class MirroredFolders:
    """The folders below `there` on the machine of `shell`, and their copy `here`. `every_s`: between two readings.

    `on_news`: called with the name of each job that has new bytes. `python`: a program, or empty: `python3`.
    """

    def __init__(
        self, shell: Shell, here: Path, there: str, *, every_s: float, on_news: Callable[[str], None], python: str = ""
    ) -> None:
        self._shell = shell
        self._here = here
        self._there = there
        self._every_s = every_s
        self._on_news = on_news
        self._python = python or "python3"
        self._jobs: dict[str, _Mirrored] = {}
        self._sent: set[str] = set()
        self._one_reads = asyncio.Lock()
        self._wanted = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None
        self._trouble = ""

    def enter(self) -> None:
        self._reading = asyncio.create_task(self._run(), name=f"read folders on {self._shell.name}")

    async def leave(self) -> None:
        """Stops reading. Idempotent."""
        reading, self._reading = self._reading, None
        await ended(reading)

    def follow(self, job_name: str, folder: str) -> None:
        """Reads the job's `folder`, a path below both. Idempotent."""
        if job_name not in self._jobs:
            self._jobs[job_name] = _Mirrored(folder, _sizes(self._here / folder))
            self._wanted.set()

    def forget(self, job_name: str) -> None:
        self._jobs.pop(job_name, None)

    def hurry(self) -> None:
        """Reads now, as a job has ended."""
        self._wanted.set()

    async def send(self, files: Sequence[str], once: Sequence[str] = ()) -> None:
        """Sends files of the copy. `once`: files that never change, which are sent unless they are there.

        Raises PlatformUnavailable, BadCredentials.
        """
        unsure = [name for name in once if name not in self._sent]
        if unsure:
            sizes = (await self._call({"verb": "look", "files": unsure}))["sizes"]
            unsure = [name for name in unsure if sizes.get(name) != (self._here / name).stat().st_size]
        names = [*unsure, *files]
        data = [await asyncio.to_thread((self._here / name).read_bytes) for name in names]
        request = {"verb": "write", "files": [[name, len(one)] for name, one in zip(names, data, strict=True)]}
        await self._call(request, b"".join(data))
        self._sent.update(once)

    async def remove(self, patterns: Sequence[str]) -> None:
        """Removes the files on the machine that match these patterns.

        Raises PlatformUnavailable, BadCredentials.
        """
        await self._call({"verb": "remove", "files": list(patterns)})
        self._sent.clear()

    async def read(self) -> bool:
        """Adds new bytes of all followed jobs to their copies; returns whether there are more.

        Raises PlatformUnavailable, BadCredentials and OSError.
        """
        async with self._one_reads:
            jobs = dict(self._jobs)
            wanted = {one.folder: one.offsets for one in jobs.values()}
            if not wanted:
                return False
            answer = await self._ask({"verb": "read", "jobs": wanted, "most": _MOST_BYTES})
            by_folder = {one.folder: (name, one) for name, one in jobs.items()}
            news: list[str] = []
            try:
                await to_its_end(lambda: self._store_all(answer, by_folder, news))
            finally:  # what was stored before a failure or a cancellation is not read again
                for name in dict.fromkeys(news):
                    self._on_news(name)
        return bool(_done(answer, self._shell.name).get("more"))

    async def _run(self) -> None:
        has_more = False
        while True:
            if not has_more:
                await self._wait()
            try:
                has_more = await self.read()
                self._trouble = ""
            except (PlatformUnavailable, BadCredentials, OSError) as error:
                has_more = False
                if str(error) != self._trouble:
                    log.warning("results of jobs cannot be read now: %s", error)
                self._trouble = str(error)

    async def _wait(self) -> None:
        await happened(self._wanted, asyncio.timeout(self._every_s if self._jobs else None))
        self._wanted.clear()

    def _store_all(self, answer: Answer, jobs: Mapping[str, tuple[str, _Mirrored]], news: list[str]) -> None:
        """Stores an answer and adds the name of each job with new bytes to `news`. Raises OSError."""
        for message in _messages(answer):
            if "data" not in message or message.get("folder") not in jobs:
                continue
            name, job = jobs[message["folder"]]
            if _store(self._here / job.folder, job.offsets, message):
                news.append(name)

    async def _call(self, request: Mapping[str, Any], data: bytes = b"") -> Mapping[str, Any]:
        return _done(await self._ask(request, data), self._shell.name)

    async def _ask(self, request: Mapping[str, Any], data: bytes = b"") -> Answer:
        text = await asyncio.to_thread(_PROGRAM.read_bytes)
        boot = "import sys,base64;exec(base64.b64decode(sys.stdin.buffer.readline()))"
        root = json.dumps({**request, "root": self._there}).encode()
        stdin = base64.b64encode(text) + b"\n" + root + b"\n" + data
        limit_s = _SEND_S if data else _READ_S
        command = f"exec {shlex.quote(self._python)} -I -c {shlex.quote(boot)}"
        return await self._shell.run(command, stdin, limit_s)


def _messages(answer: Answer) -> Iterator[dict[str, Any]]:
    for line in answer.out.splitlines():
        try:
            message = json.loads(line)
        except ValueError:
            continue  # cut off
        if isinstance(message, dict):
            yield message


def _done(answer: Answer, machine: str) -> Mapping[str, Any]:
    """The end of an answer. Raises PlatformUnavailable."""
    last: dict[str, Any] = {}
    for message in _messages(answer):
        last = message
    if answer.rc == _NO_PYTHON:
        why = "it has no python3; set login.pythonPath to the folder of one"
    else:
        why = str(last.get("error") or answer.complaint[-300:] or "its answer is incomplete")
    if "done" not in last:
        raise PlatformUnavailable(f"{machine}: the jobs' folder cannot be used: {why}", refused=True)
    done: Mapping[str, Any] = last["done"]
    return done


def _sizes(folder: Path) -> dict[str, int]:
    """The sizes of the files of a copy, by their path in it."""
    found = (path for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else ()
    return {str(path.relative_to(folder)): path.stat().st_size for path in found}


def _store(folder: Path, offsets: dict[str, int], message: Mapping[str, Any]) -> bool:
    """Stores a piece of a file; False: it does not continue the copy."""
    name, data = str(message["file"]), base64.b64decode(message["data"])
    if name.startswith("/") or ".." in name.split("/"):
        return False
    if name in _REPORTS:
        write_private(folder / name, data)
        offsets[name] = len(data)
        return True
    if message["offset"] != offsets.get(name, 0):
        return False
    path = folder / name
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.touch()
    with path.open("r+b") as file:
        end = file.seek(0, os.SEEK_END)
        if end < message["offset"]:
            offsets[name] = end  # the copy was cut: the next reading continues there
            return False
        file.seek(message["offset"])  # a full disk may have left a part of this piece
        file.write(data)
        file.truncate()
    offsets[name] = message["offset"] + len(data)
    return bool(data)
