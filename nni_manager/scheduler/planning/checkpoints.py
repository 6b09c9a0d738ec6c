"""Decides which checkpoints are removed, as `keepCheckpoints` says."""

from __future__ import annotations

from nni_manager.domain.trial import TrialStatus
from nni_manager.scheduler.planning.decisions import Decisions, Finish, NoteCheckpoint, RemoveCheckpoints
from nni_manager.scheduler.planning.snapshot import Snapshot

#: A trial that ended otherwise may be looked at, or run again, with what it left.
_ENDED_WELL = (TrialStatus.SUCCEEDED, TrialStatus.EARLY_STOPPED)


def note_checkpoints(snapshot: Snapshot, decisions: Decisions) -> None:
    """Notes the trials that end well with this plan, where a service of theirs can remove what they leave."""
    if snapshot.spec.kept_checkpoints is None:
        return
    for record in [one for one in decisions.records if isinstance(one, Finish)]:
        can_remove = snapshot.service(record.service).state.capabilities.removes_checkpoints
        if record.status in _ENDED_WELL and can_remove:
            decisions.records.append(NoteCheckpoint(trial_id=record.trial_id))


def remove_checkpoints(snapshot: Snapshot, decisions: Decisions) -> None:
    """Removes those that nothing needs any more."""
    if found := snapshot.stored.needless:
        decisions.calls.append(RemoveCheckpoints(checkpoints=found))
