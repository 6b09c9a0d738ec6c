"""The stored state of an experiment as one turn reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from nni_manager.domain.attempt import Attempt
from nni_manager.domain.experiment import Hold, StoredExperiment
from nni_manager.domain.job import JobHandle
from nni_manager.domain.trial import OpenTrial


class NeedlessCheckpoint(NamedTuple):
    """The checkpoint of a trial that ended well, which nothing needs any more."""

    trial_id: str
    #: (training service, job) of each attempt: it may have been at several places.
    jobs: tuple[tuple[str, JobHandle], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredState:
    """The part of an experiment's database that its next plan depends on."""

    experiment: StoredExperiment
    #: Training service → its hold: something must be put right before it is used again.
    holds: Mapping[str, Hold | None]
    #: Not ended, oldest first.
    open_trials: tuple[OpenTrial, ...]
    #: Trial → (attempts that failed by the platform, by user code), for trials with an attempt that may have failed.
    retries: Mapping[str, tuple[int, int]]
    #: Job without a handle that may have run already → bytes stored per outbox.
    offsets: Mapping[str, Mapping[str, int]]
    #: Job with a command that ended, as its runner reported → outbox that is not stored whole → (bytes stored, bytes
    #: written).
    missing: Mapping[str, Mapping[str, tuple[int, int]]]
    #: Trial that waits for its next attempt → service on which its last job may still run.
    left: Mapping[str, str] = field(default_factory=dict)
    #: Trial → attempts that were given up because their jobs could not be observed, the last first.
    missed: Mapping[str, tuple[Attempt, ...]] = field(default_factory=dict)
    #: Unused trial ids for waiting proposals.
    fresh_ids: tuple[str, ...]
    #: (id, status, reason, message) of the first trials that ended, while these are few.
    first_ended: tuple[tuple[str, str, str, str], ...]
    #: Failure keys of the last trials that ended since the experiment was resumed, in their order; fewer than
    #: `maxSameFailures`.
    last_keys: tuple[str, ...] = ()
    #: Trials that failed since then; counted where `maxFailedTrials` is set.
    failed: int = 0
    #: Checkpoints to remove, by `keepCheckpoints`; a few of them, where there are many.
    needless: tuple[NeedlessCheckpoint, ...] = ()

    def is_drained(self, job_name: str) -> bool:
        """Whether the job's runner has reported the end of the command, and all results are stored."""
        return self.missing.get(job_name) == {}
