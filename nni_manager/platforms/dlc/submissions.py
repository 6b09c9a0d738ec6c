"""A record of submissions in the experiment's folder: the service takes the same job twice, and knows no name for it.

Written before a job is sent, and again with the job's id: whoever finds the first without the second has to look
whether the job is there before it sends it again. Blocks; for threads. Raises OSError.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from trial_runner.wire import foreign_files


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    #: Milliseconds since the epoch of the last time it was sent.
    sent_ms: int
    #: Empty: its answer never came.
    job_id: str = ""


class Submissions:
    """The submissions of one service. `folder`: the service's in the experiment's folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get(self, job_name: str) -> Submission | None:
        try:
            return Submission(**json.loads(self._path(job_name).read_text()))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError):  # half a file after a loss of power: sent, nobody knows when
            return Submission(sent_ms=round(self._path(job_name).stat().st_mtime * 1000))

    def put(self, job_name: str, submission: Submission) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        foreign_files.write_whole(str(self._folder), self._path(job_name).name, json.dumps(asdict(submission)).encode())

    def remove(self, job_name: str) -> None:
        self._path(job_name).unlink(missing_ok=True)

    def _path(self, job_name: str) -> Path:
        return self._folder / f"{job_name}.json"
