"""The stored state of an experiment as one turn reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nni_manager.domain.attempt import Attempt
from nni_manager.domain.experiment import Hold, StoredExperiment
from nni_manager.domain.trial import OpenTrial


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredState:
    """Everything of one experiment that its next plan depends on and that is in its database."""

    experiment: StoredExperiment
    #: Training service → its hold: something must be put right before it is used again.
    holds: Mapping[str, Hold | None]
    #: Not ended, oldest first.
    open_trials: tuple[OpenTrial, ...]
    #: (platform, user code): attempts given up on either account, of trials whose attempt may have failed.
    retries: Mapping[str, tuple[int, int]]
    #: Of jobs that were decided on earlier and have no handle: outbox → bytes stored, as they may have run already.
    offsets: Mapping[str, Mapping[str, int]]
    #: Of jobs whose runner has said that its command ended: outbox → (bytes stored, bytes that there are), of those
    #: that are not stored whole.
    missing: Mapping[str, Mapping[str, tuple[int, int]]]
    #: Trial that waits for its next attempt → service on which its last job may still run.
    left: Mapping[str, str] = field(default_factory=dict)
    #: Trial → attempts that were given up because their jobs could not be asked about, the last first.
    missed: Mapping[str, tuple[Attempt, ...]] = field(default_factory=dict)
    #: Unused trial ids, for the proposals in hand that there may be a slot for.
    fresh_ids: tuple[str, ...]
    #: (id, status, reason, message) of the first trials that ended, while these are few.
    first_ended: tuple[tuple[str, str, str, str], ...]
    #: Failure keys of the last trials that ended since the experiment was resumed, in their order; fewer than
    #: `maxSameFailures`.
    last_keys: tuple[str, ...] = ()
    #: Trials that failed since then; counted where `maxFailedTrials` is set.
    failed: int = 0

    def is_drained(self, job_name: str) -> bool:
        """Whether the job's runner has said that its command ended, and all its results are stored."""
        return self.missing.get(job_name) == {}
