"""The content of a job's handle: enough to find its object again, in whatever process."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import lru_cache

from nni_manager.domain.job import JobHandle, JobSpec
from nni_manager.kubernetes.api.client import Object


@dataclass(frozen=True, slots=True, kw_only=True)
class HandleData:
    """The content of `JobHandle.data`."""

    #: The name and uid of the job's object.
    name: str
    uid: str
    #: The attempt's folder, below the experiment's.
    folder: str = ""
    #: The address of the job's files, for people.
    link: str = ""


def read(handle: JobHandle) -> HandleData:
    return _parsed(handle.data)


@lru_cache(maxsize=4096)
def _parsed(data: str) -> HandleData:
    """Cached, as a job's handle is read at each observation."""
    return HandleData(**json.loads(data))


def make(platform: str, spec: JobSpec, created: Object, link: str) -> JobHandle:
    """The handle of a job. `created`: its object, as the server has it; `link`: as in `HandleData`."""
    meta = created["metadata"]
    content = HandleData(name=meta["name"], uid=meta.get("uid", ""), folder=spec.attempt_directory, link=link)
    return JobHandle(platform=platform, version=1, job_name=spec.name, data=json.dumps(asdict(content)))
