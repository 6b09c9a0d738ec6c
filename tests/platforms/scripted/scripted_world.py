"""The scripted cluster as a `World`: a real keeper, real runners, results that are read, commands led through pipes."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import shutil
import signal
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

import psutil

from nni_manager.code_archive import pack
from nni_manager.domain.clock import now_ms
from nni_manager.domain.ids import job_name
from nni_manager.domain.job import JobHandle, JobSpec, JobState
from nni_manager.platform_kit.contract import Platform
from nni_manager.platform_kit.testing import Feature, Lag, LaggingStorage, Recorder, lagging_storage
from nni_manager.platforms.scripted.config import ScriptedConfig
from nni_manager.platforms.scripted.platform import ScriptedPlatform
from tests import bare_python
from tests.platforms.keeper_world import KeeperWorld, job_spec
from tests.platforms.obedient_job import PATIENCE_S, ended
from trial_runner import protocol

SECRET = "t0ken-of-the-runner"
FAR_S = 1_000_000
_CODES = ("UNSCHEDULABLE", "IMAGE")
_MACHINES = ("m1", "m2")
#: No wrapper of an interpreter, which would add variables of its own.
_PATH = f"{Path(bare_python.own()).parent}:/usr/bin:/bin"


class ScriptedWorld(KeeperWorld):
    """What befalls the cluster is far in the future, each at a time of its own, until its beginning is set back."""

    absent: ClassVar[Mapping[Feature, str]] = {
        Feature.TIME_LIMIT: "its batch configuration has one",
        Feature.ENDING_NOTICE: "its batch configuration has it",
        Feature.SECOND_RUN: "its batch configuration has it",
        Feature.OVERLOOKED: "its batch configuration has it",
        Feature.STATES: "the cluster has no words of its own",
        Feature.FOREIGN_JOBS: "the cluster's jobs are files of the experiment, and no other has any there",
    }
    pace = (5, 0.5)
    max_observe_calls = 2

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.secrets = (SECRET,)
        self.folder = self.recorder.folder = directory / "experiment"
        self.storage = directory / "mounted"
        self._account_log = directory / "account.log"
        self._replicas = 1

    async def __aenter__(self) -> Self:
        self._write_code()
        (self.folder / "code").mkdir(parents=True)
        self.recorder.code_archive = pack(self.code, self.folder / "code").path
        self._connect_anew()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, stack: TracebackType | None
    ) -> None:
        await self.end_hanging()
        pid = self.keeper_pid
        if pid is not None:
            for process in psutil.Process(pid).children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    process.kill()
        await self._disconnect()
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        await self._clean_up()

    # The adapter

    def make(self, **settings: Any) -> ScriptedPlatform:
        """With settings of its own, or with those that the world's other methods expect."""
        return self._made(self.recorder, settings or self._settings({"delay": FAR_S}))

    def make_of(self, recorder: Recorder) -> Platform[Any]:
        recorder.folder.mkdir(exist_ok=True)
        return self._made(recorder, self._settings({"delay": FAR_S}))

    def make_on_machines(self) -> Platform[Any]:
        machines = [{"name": name, "places": 1} for name in _MACHINES]
        away = [{"machine": name, **_span(f"unreachable {name}")} for name in _MACHINES]
        return self._made(self.recorder, self._settings({"delay": FAR_S}, machines=machines, unreachable=away))

    def make_replicated(self) -> Platform[Any]:
        self._replicas = 2
        return self._made(self.recorder, self._settings({"delay": FAR_S, "replicas": 2}))

    def _settings(self, rule: Mapping[str, Any], **more: Any) -> dict[str, Any]:
        """What the world's other methods expect."""
        calls, per_s = self.pace
        portal = {"match": {"sequence": FAR_S}, "cancelledByPerson": True}  # so that it has one
        return {
            "launch": "process",
            "channel": "pull",
            "storage": str(self.storage),
            "trials": [portal, rule],
            "outage": _span("outage"),
            "enterOutage": _span("outage"),
            "noRoom": _span("shortage"),
            "account": {"name": "us", "calls": calls, "per": per_s, "log": str(self._account_log)},
            **more,
        }

    def _made(self, recorder: Recorder, settings: Mapping[str, Any]) -> ScriptedPlatform:
        return ScriptedPlatform(
            ScriptedConfig.model_validate({"platform": "scripted", **settings}), recorder.host(self.keeper)
        )

    def make_pushing(self) -> Platform[Any]:
        return self.make(launch="process", channel="push")

    def make_unauthorised(self) -> Platform[Any]:
        return self.make(launch="none", wrongCredentials={})

    def state_of(self, native: str) -> JobState:
        raise NotImplementedError

    # Jobs

    def command(
        self, trial_id: str, command: str, sequence_id: int = 0, attempt: int = 1, *, recorder: Recorder | None = None
    ) -> JobSpec:
        experiment_id = (recorder or self.recorder).experiment_id
        folder = (recorder or self.recorder).folder
        attempt_id = trial_id if attempt == 1 else f"{trial_id}-{attempt}"
        return job_spec(
            name=job_name(experiment_id, trial_id, attempt),
            experiment_id=experiment_id,
            trial_id=trial_id,
            attempt=attempt,
            sequence_id=sequence_id,
            command=command,
            caller_environment={"PATH": _PATH, "HOME": "/nowhere", "API_KEY": "of-the-caller"},
            code_directory=str(self.code),
            attempt_directory=str(folder / "trials" / attempt_id),
            runner_environment={protocol.ENV_TOKEN: SECRET, protocol.ENV_MANAGER_URL: "http://127.0.0.1:9/none"},
        )

    def pushing_job(self, trial_id: str, command: str, runner_environment: Mapping[str, str]) -> JobSpec:
        return dataclasses.replace(self.command(trial_id, command), runner_environment=runner_environment)

    def directory(self, job_name: str) -> Path:
        """Where the runner of a job works, on the shared storage."""
        return self.storage / job_name.split("_")[2] / job_name.rpartition("_")[2]

    def job_of(self, recorder: Recorder, trial_id: str) -> JobSpec:
        spec = super().job_of(recorder, trial_id)
        for number in range(1, self._replicas):
            self.add_pipes(f"{spec.name}/{number}", self.directory(spec.name) / "replicas" / str(number))
        return spec

    async def begin(self, handle: JobHandle) -> None:
        """Its delay is over: on file, and for the shell that sleeps."""
        self._change_rule(handle, delay=0.0)
        shell = psutil.Process(self.pid(handle))
        async with asyncio.timeout(PATIENCE_S):
            while not (sleeping := shell.children()):  # noqa: ASYNC110 (nothing tells when a shell begins a command)
                await asyncio.sleep(0.005)
        sleeping[0].kill()
        (self.directory(handle.job_name) / protocol.STDOUT_FILE).touch()  # as its runner does a moment later

    async def vanish(self, handle: JobHandle) -> None:
        pid = self.pid(handle)
        shutil.rmtree(self._folder_of(handle))
        os.killpg(pid, signal.SIGKILL)
        await ended(pid)

    async def end(self, handle: JobHandle, exit_code: int) -> None:
        for number in range(1, self._replicas):
            self._pipes[f"{handle.job_name}/{number}"].order(f"exit {exit_code}")
        await super().end(handle, exit_code)

    async def report_from(self, handle: JobHandle, replica: int, line: str) -> None:
        name = handle.job_name if replica == 0 else f"{handle.job_name}/{replica}"
        await self._pipes[name].tell(f"report {line}")

    async def hold_back(self, handle: JobHandle, number: int) -> str:
        sentence = f"reason number {number}"
        self._change_rule(handle, pendingReason=[{"sentence": sentence, "code": _CODES[number]}])
        return sentence

    async def strand(self, handle: JobHandle) -> str:
        self._change_rule(handle, pendingReason=[{"sentence": "no such partition", "hopeless": True}])
        return "no such partition"

    async def cancel_in_portal(self, handle: JobHandle) -> None:
        self._change_rule(handle, cancelledByPerson=True)

    async def displace(self, handle: JobHandle) -> None:
        self._change_rule(handle, preempted=True, uncounted=True)

    def _change_rule(self, handle: JobHandle, **changes: Any) -> None:
        path = self._folder_of(handle) / "job.json"
        entry = json.loads(path.read_text())
        entry["rule"].update(changes)
        _write(path, entry)

    def _folder_of(self, handle: JobHandle) -> Path:
        """Of whichever experiment it belongs to."""
        (folder,) = self.folder.parent.glob(f"*/service/{handle.job_name}")
        return folder

    def lag(self, lag: Lag) -> AbstractContextManager[LaggingStorage]:
        return lagging_storage(self.storage, lag)

    # The platform

    @property
    def calls_seen(self) -> Sequence[float]:
        return [moment for moment, what in self._account() if what != "login"]

    @property
    def sessions_seen(self) -> int:
        return [what for _, what in self._account()].count("login")

    def _account(self) -> list[tuple[float, str]]:
        lines = (line.split() for line in self._account_log.read_text().splitlines())
        return [(float(moment), what) for moment, what in lines]

    async def start_outage(self) -> None:
        self._begin_at("outage")

    async def end_outage(self) -> None:
        self._begin_at("")

    async def start_shortage(self) -> None:
        self._begin_at("shortage")

    async def end_shortage(self) -> None:
        self._begin_at("")

    async def cut_off(self, handle: JobHandle) -> None:
        machine = json.loads((self._folder_of(handle) / "job.json").read_text())["machine"]
        self._begin_at(f"unreachable {machine}")

    async def reconnect(self, handle: JobHandle) -> None:
        self._begin_at("")

    def _begin_at(self, what: str) -> None:
        """The cluster began so long ago that this is what befalls it now; empty: nothing does."""
        begun_ms = now_ms() - round((_span(what)["after"] if what else 0) * 1000)
        (self.folder / "service").mkdir(exist_ok=True)
        _write(self.folder / "service" / "cluster.json", {"begunMs": begun_ms})


_SPANS = ("", "outage", "shortage", *(f"unreachable {name}" for name in _MACHINES))


def _span(what: str) -> dict[str, float]:
    return {"after": 2 * _SPANS.index(what) * FAR_S, "for": FAR_S}


def _write(path: Path, entry: Mapping[str, Any]) -> None:
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(entry))
    draft.replace(path)
