"""What goes into an experiment's next turn: what happened since the last one, and how things are around it."""

from __future__ import annotations

from collections.abc import Mapping

from nni_manager.domain.clock import Clock
from nni_manager.domain.experiment import Hold, HoldCode
from nni_manager.domain.job import JobReport, JobState
from nni_manager.platform_kit.contract import Capabilities
from nni_manager.scheduler.actions import Actions
from nni_manager.scheduler.beats import Beats
from nni_manager.scheduler.bell import Bell
from nni_manager.scheduler.observer import Observer
from nni_manager.scheduler.snapshot import Surroundings
from nni_manager.scheduler.tuner_feed import TunerFeed
from nni_manager.scheduler.turn import LastWords, Seen


class Intake:
    """Kept in memory until a turn has stored it: whoever dies before finds it out again."""

    def __init__(self, bell: Bell, feed: TunerFeed, actions: Actions) -> None:
        self._bell = bell
        self._feed = feed
        self._actions = actions
        self._reports: dict[str, JobReport] = {}
        self._new_hold: Hold | None = None
        #: A hold on its way into the store.
        self._hold_taken: Hold | None = None

    @property
    def hold(self) -> Hold | None:
        """One that is not stored yet."""
        return self._new_hold or self._hold_taken

    def put_on_hold(self, hold: Hold) -> None:
        """Recorded by the next turn."""
        self._new_hold = hold
        self._bell.ring()

    def take_reports(self, reports: Mapping[str, JobReport]) -> None:
        """Evidence from platform or runner, for the next turn: what says more counts, and of two ends the first."""
        for name, report in reports.items():
            known = self._reports.get(name)
            if known is None or (_WEIGHT[report.state] >= _WEIGHT[known.state] and not known.state.is_final):
                self._reports[name] = report
        self._actions.forgetting.hear(reports)
        if any(report.state.is_final for report in reports.values()):
            self._bell.ring()
        else:
            self._bell.ring_soon()

    def take_trouble(self, trouble: Hold | None) -> None:
        """The platform cannot be used, or can again (None)."""
        if trouble is not None and trouble.code is HoldCode.BAD_CREDENTIALS:
            self.put_on_hold(trouble)
        else:
            self._actions.set_trouble(trouble)
            self._bell.ring()

    def take(self, last_words: tuple[LastWords, ...], clock_step_ms: int) -> Seen:
        """All there is; `stored` says that it was not in vain."""
        reports, self._reports = self._reports, {}
        bad, self._feed.judged_bad = self._feed.judged_bad, []
        handles, refused, forgotten = self._actions.take_news()
        hold, self._new_hold = self._new_hold, None
        self._hold_taken = hold
        return Seen(
            handles=handles,
            reports=reports,
            last_words=last_words,
            refused=refused,
            forgotten=forgotten,
            judged_bad=tuple(bad),
            hold=hold or self._feed.failure,
            clock_step_ms=clock_step_ms,
        )

    def stored(self) -> None:
        """What was taken last is in the store."""
        self._hold_taken = None


def surroundings(
    feed: TunerFeed, actions: Actions, observer: Observer, capabilities: Capabilities, beats: Beats, clock: Clock
) -> Surroundings:
    """What no database knows, as it is now."""
    listening_ms, silent_ms = beats.silence_ms() if capabilities.lives_by_runner else (None, {})
    return Surroundings(
        now_ms=clock(),
        submitting=frozenset(actions.submitting),
        cancelled=frozenset(actions.cancelled),
        unreachable_since_ms=observer.unreachable_since_ms,
        platform_trouble=actions.trouble.sentence if actions.trouble else "",
        retry_at_ms=actions.retry_at_ms,
        proposals=tuple(feed.proposals),
        asked=feed.asked,
        exhausted=feed.exhausted,
        ahead=feed.ahead,
        tuner_trouble=feed.silence,
        expects_runner=capabilities.expects_runner,
        is_read=capabilities.is_read,
        listening_ms=listening_ms,
        silent_ms=silent_ms,
    )


#: How much a state says: nothing, waits, runs, over.
_WEIGHT = {state: 3 if state.is_final else 0 for state in JobState} | {JobState.PENDING: 1, JobState.RUNNING: 2}
