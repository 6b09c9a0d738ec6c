"""The hold for trials that succeed without a usable result: they would use up the budget (`maxUnusableResults`).

The count begins at the start and at each resume. It ends at the first result with the numbers, finite or not; then no
data of it is read or written again.
"""

from __future__ import annotations

from collections.abc import Sequence

from nni_manager.domain.experiment import Hold, HoldCode
from nni_manager.domain.results import result_advice
from nni_manager.domain.results.final_result import ReportedResult, Usability
from nni_manager.domain.trial_status import TrialStatus
from nni_manager.scheduler.planning.decisions import CountUnusable, Decisions, Finish
from nni_manager.scheduler.planning.experiment_status import trials_left
from nni_manager.scheduler.planning.snapshot import Snapshot


def hold_for_results(snapshot: Snapshot, finished: Sequence[Finish], decisions: Decisions) -> Hold | None:
    """Counts the ends that this plan decided; returns the hold once the count reaches `maxUnusableResults`."""
    spec, before = snapshot.spec, snapshot.experiment.unusable_results
    if before is None or not spec.counts_unusable_results:
        return None
    count: int | None = before
    for end in finished:
        reported = snapshot.stored.reported.get(end.trial_id)
        if count is None or reported is None or end.status is not TrialStatus.SUCCEEDED:
            continue
        is_unusable = reported.usability(spec.tuner.objectives) is Usability.UNUSABLE
        count = count + 1 if is_unusable else None
        is_reached = count is not None and count >= spec.max_unusable_results
        if is_reached and snapshot.experiment.hold is None and trials_left(snapshot):
            decisions.records.append(CountUnusable(count=count))
            return _hold(snapshot, reported)
    if count != before:
        decisions.records.append(CountUnusable(count=count))
    return None


def _hold(snapshot: Snapshot, example: ReportedResult) -> Hold:
    spec, row = snapshot.spec, snapshot.experiment
    advice = result_advice.advice(example, spec.canonical, row.class_direction)
    own = "; if your tuner reads such results, set maxUnusableResults: 0" if spec.tuner.class_name else ""
    sentence = (
        f"the first {spec.max_unusable_results} trials that succeeded have no usable result (maxUnusableResults):"
        f" {advice}{own}. `nnictl resume {row.id}` continues with changed trial code; a changed experiment file needs"
        " a new experiment"
    )
    return Hold(code=HoldCode.NO_USABLE_RESULT, sentence=sentence)
