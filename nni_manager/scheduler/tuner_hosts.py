"""The processes of one experiment's tuner and assessor: one, or two when one of them is a user's class and one is ours.

Ours run in the daemon's Python; users' classes run in the caller's, in the caller's environment, and share a process.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nni_manager.domain.experiment import ExperimentSpec
from nni_manager.platform_kit.payload import TUNER_HOST
from nni_manager.scheduler.tuner_host import TunerHost

#: Variables by which a Python finds its modules and libraries: the caller's are for the caller's Python.
_OF_PYTHON = ("PYTHON", "LD_")
#: Verbs that say something about trials to both algorithms.
_FOR_BOTH = ("start", "learn")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPlace:
    """What the processes are started with."""

    #: The Python of users' classes.
    interpreter: str
    #: The caller's.
    environment: dict[str, str]
    folder: Path
    log_folder: Path


class TunerHosts:
    """Made by `start`; asked as one `TunerHost` is."""

    def __init__(self, tuner: TunerHost, assessor: TunerHost) -> None:
        """The same host twice when one process runs both, or there is no assessor."""
        self._tuner = tuner
        self._assessor = assessor
        self._asked = tuner

    @classmethod
    async def start(cls, place: HostPlace, spec: ExperimentSpec) -> TunerHosts:
        """Raises TunerDied when one cannot be started."""
        tuner = await _start(place, spec, is_users=bool(spec.tuner.class_name))
        assessor = spec.assessor
        if assessor is None or bool(assessor.class_name) == bool(spec.tuner.class_name):
            return cls(tuner, tuner)
        try:
            return cls(tuner, await _start(place, spec, is_users=bool(assessor.class_name)))
        except BaseException:
            await tuner.close(kill=True)
            raise

    async def call(self, verb: str, *, patience_s: float, on_silence: Callable[[], object], **arguments: Any) -> Any:
        """As of `TunerHost`."""
        if self._tuner is not self._assessor and verb in _FOR_BOTH:
            answer = await self._ask(self._tuner, verb, patience_s, on_silence, _without("assessor", arguments))
            await self._ask(self._assessor, verb, patience_s, on_silence, _without("tuner", arguments))
            return answer
        host = self._assessor if verb == "judge" else self._tuner
        return await self._ask(host, verb, patience_s, on_silence, arguments)

    async def stacks(self) -> str:
        """Of the one that was asked last."""
        return await self._asked.stacks()

    async def close(self, *, kill: bool = False) -> None:
        """Idempotent."""
        await asyncio.gather(*(host.close(kill=kill) for host in {self._tuner, self._assessor}))

    async def _ask(
        self, host: TunerHost, verb: str, patience_s: float, on_silence: Callable[[], object], arguments: dict[str, Any]
    ) -> Any:
        self._asked = host
        return await host.call(verb, patience_s=patience_s, on_silence=on_silence, **arguments)


async def _start(place: HostPlace, spec: ExperimentSpec, *, is_users: bool) -> TunerHost:
    """Users' classes start where trials do: what ``python3`` is may depend on the folder, as with pyenv."""
    own = [sys.executable, "-m", "nni_manager.scheduler.tuner_process"]
    return await TunerHost.start(
        command=[place.interpreter, TUNER_HOST] if is_users else own,
        environment=place.environment if is_users else _for_our_python(place.environment),
        directory=Path(spec.trial_code_directory) if is_users else place.folder,
        folder=place.folder,
        log_folder=place.log_folder,
        gpus=",".join(map(str, spec.tuner_gpu_indices or ())),
    )


def _for_our_python(environment: Mapping[str, str]) -> dict[str, str]:
    callers = {name: value for name, value in environment.items() if not name.startswith(_OF_PYTHON)}
    return callers | {name: value for name, value in os.environ.items() if name.startswith(_OF_PYTHON)}


def _without(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """The other process runs it."""
    return {**arguments, name: None} if name in arguments else arguments
