"""The experiment's calls to its tuner and assessor.

The loop queues requests (`want`, `tell`, `judge`…) without waiting; one task makes the calls. The process is started
when first needed, with the history from the store, and may die at any time: its state is rebuilt from the store, and
open requests are made again. Each process gets each final result once, in the history or later.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any

from nni_manager.domain.errors import TunerError, TunerRaised
from nni_manager.domain.experiment import ExperimentSpec, ExperimentWarning, Hold, HoldCode, LiveSpec
from nni_manager.domain.results import direction
from nni_manager.domain.space.parameters import Proposal
from nni_manager.scheduler.experiment_log import write_text
from nni_manager.scheduler.tuning import imported_results
from nni_manager.scheduler.tuning.host import HostPlace
from nni_manager.scheduler.tuning.judgeable_results import JudgeableResults
from nni_manager.scheduler.tuning.watched_tuner import WatchedTuner
from nni_manager.store.database import Database
from nni_manager.store.experiment import experiments, history, trials
from trial_runner.wire import shortage

log = logging.getLogger(__name__)

#: Deaths of the process, and the seconds within which they put the experiment on hold.
MAX_DEATHS = 3
DEATHS_WITHIN_S = 600.0
#: Seconds before the next start of a process that died before its first answer, perhaps by the out-of-memory killer.
_START_WAITS_S = (2.0, 5.0)
#: Bounds of the number of proposals requested ahead of need (`trialConcurrency`), from tuners that allow it. The lower
#: bound saves short trials a call for every second one.
MIN_AHEAD, MAX_AHEAD = 16, 32

Item = dict[str, Any]


class TunerFeed:
    """`wake`: called after proposals, an assessment or a failure; `warn`: called with warnings for users, once each."""

    def __init__(
        self,
        database: Database,
        spec: LiveSpec,
        place: HostPlace,
        *,
        reported: int,
        patience_s: float,
        wake: Callable[[], None],
        warn: Callable[[ExperimentWarning], None] = lambda _: None,
    ) -> None:
        self._live = spec
        self._database = database
        self._wake = wake
        self._judgeable = JudgeableResults(spec, warn)
        self._work = asyncio.Event()
        self._tuner = WatchedTuner(place, patience_s=patience_s, changed=wake, on_news=self._work.set)
        self._deaths: deque[float] = deque()
        self._has_started = False  # the present process has answered its first request
        #: Unused proposals in order; the loop removes those that became trials.
        self.proposals: deque[Proposal] = deque()
        #: Ids of dropped proposals that the tuner still considers active.
        self._withdrawn: set[int] = set()
        #: No turn is creating trials from the proposals.
        self._settled = asyncio.Event()
        self._settled.set()
        #: Number of requested proposals that have not arrived, and of those among them that the tuner is generating.
        self.asked, self._owed = 0, 0
        #: Highest end order of the delivered results; earlier ends are in the history at the start.
        self.reported = reported
        #: The tuner has no more proposals for the results it knows.
        self.exhausted = False
        #: Number of proposals to request ahead of free slots.
        self.ahead = 0
        #: Ids of trials that the assessor stops early.
        self.judged_bad: list[str] = []
        #: Why the feed is stopped until a resume; None: it runs.
        self.failure: Hold | None = None
        self.next_parameter_id = 0
        #: Whether the tuner wants intermediate results, like users' advisors; None: unknown before its start.
        self._watches: bool | None = None
        #: Whether the tuner proposes dropped parameters again, so that unused proposals may be dropped at any time.
        self._withdraws = False
        self._resting = False
        self._results: list[Item] = []
        #: Trials that the assessor, or a tuner that stops trials, must judge, in request order.
        self._to_judge: dict[str, None] = {}
        #: Trial → its attempt, and the number of its results that the current process has seen.
        self._seen: dict[str, tuple[int, int]] = {}
        self._changes: list[tuple[str, Item]] = []

    @property
    def spec(self) -> ExperimentSpec:
        return self._live.now

    @property
    def takes_intermediates(self) -> bool:
        """Whether intermediate results are wanted: by the assessor, or by a user's tuner, which may be an advisor."""
        return self.spec.assessor is not None or (bool(self.spec.tuner.class_name) and self._watches is not False)

    @property
    def silence(self) -> Hold | None:
        """The hold while the current call takes too long; None: it does not."""
        return self._tuner.silence

    # Requests of the loop

    def want(self, count: int) -> None:
        """Requests `count` more proposals."""
        self._resting = False
        self.asked += count
        self._work.set()

    @contextmanager
    def lending(self) -> Iterator[None]:
        """A context in which no proposal is withdrawn, as a turn may create trials from them. Contains `take`."""
        self._settled.clear()
        try:
            yield
        finally:
            self._settled.set()

    def take(self, parameter_ids: set[int]) -> None:
        """Removes proposals that became trials."""
        self.proposals = deque(p for p in self.proposals if p.parameter_id not in parameter_ids)
        self._withdrawn -= parameter_ids

    def tell(self, results: Sequence[Item]) -> None:
        """Queues results of ended trials, in end order; not empty."""
        self._results += results
        self.reported = results[-1]["end_order"]
        if self.exhausted:  # it may have more proposals now
            self.asked += 1
        for result in results:
            self._judgeable.look(result["trial_id"], result.get("intermediates", ()), has_ended=True)
            self._to_judge.pop(result["trial_id"], None)
            self._seen.pop(result["trial_id"], None)
        if not self._tuner.is_started and not self.asked:
            self._results.clear()  # the next process gets them from the store
        elif self.asked or not self.ahead or len(self._results) >= MAX_AHEAD:
            self._work.set()  # a tuner that proposes ahead gets results with the next request

    def judge(self, trial_id: str) -> None:
        """Notes that the trial has new intermediate results."""
        if self.takes_intermediates:
            self._to_judge[trial_id] = None
            self._work.set()

    def change_search_space(self) -> None:
        """Queues the change; drops unused proposals, which came from the old search space."""
        self._drop_proposals()
        self._change("search_space", {"search_space": self.spec.search_space})

    def import_data(self, data: list[Item]) -> None:
        """Queues imported results, [{parameter, value}], as they are stored already. A tuner that withdraws proposals
        replaces the unused ones."""
        if self._withdraws:
            self._drop_proposals()
        self._change("import", {"data": data})

    def adopt(self, trial_id: str, parameters: object) -> None:
        """Queues a trial that a user added, as it is stored already: a tuner that repeats no trial skips its
        parameters, even while it is starting."""
        if self._withdraws:
            self._drop_proposals()
        given = {"parameter_id": None, "parameters": parameters, "trial_id": trial_id, "source": "customized"}
        self._change("adopt", {"trials": [given]})

    def _change(self, verb: str, arguments: Item) -> None:
        self.exhausted = False
        self._changes.append((verb, arguments))
        self._work.set()
        self._wake()

    def _drop_proposals(self) -> None:
        self._withdrawn |= {proposal.parameter_id for proposal in self.proposals}
        self.proposals.clear()

    def rest(self) -> None:
        """Ends the process once the queue is empty, as the experiment is DONE.

        A user's class keeps running, as in NNI: it may have state that the history does not restore.
        """
        self._resting = not self.spec.has_user_class
        self._work.set()

    async def reset(self) -> None:
        """On resume: clears the failure; the next request starts a fresh process."""
        self.failure = None
        self._deaths.clear()
        await self._drop_tuner()
        self._work.set()
        self._wake()

    # The task

    async def run(self) -> None:
        """Makes the calls until it is cancelled, then ends the process."""
        self._work.set()  # requests of an earlier run may be open
        await self._tuner.end_orphans()
        try:
            while True:
                await self._work.wait()
                self._work.clear()
                if self.failure is None:
                    try:
                        await self._turn()
                    except TunerError as error:
                        await self._survive(error)
                if self._resting and not self._work.is_set():
                    await self._drop_tuner()
        finally:
            await self._drop_tuner()

    async def _turn(self) -> None:
        """One round of calls; results are sent before proposals are requested."""
        if not self._tuner.is_started:
            if not (self.asked or self._to_judge):
                return
            await self._start_tuner()
        while self._changes:
            await self._make_change(*self._changes[0])
            self._changes.pop(0)
        if self._results:
            results, self._results = self._results, []
            self._note_stops(await self._tuner.call("learn", results=results))
        if self._to_judge:
            await self._judge()
        if self.asked and not self._results:
            await self._propose()
        elif self.asked:
            self._work.set()

    async def _make_change(self, verb: str, arguments: Item) -> None:
        await self._settled.wait()
        if verb == "import":
            arguments = {"data": imported_results.parsed(arguments["data"])}
        if self._withdrawn:
            arguments = {**arguments, "withdrawn": sorted(self._withdrawn)}
            self._withdrawn.clear()
        answer = await self._tuner.call(verb, **arguments)
        self._withdraws = answer.get("withdraws", self._withdraws)
        self._note_stops(answer)

    async def _start_tuner(self) -> None:
        """Starts a process with the history up to the results that were handed over. Later ones are sent as results,
        so their trials are unfinished until then: a tuner knows a trial before its result."""
        self._has_started = False
        await self._tuner.start(self.spec)
        assessed, until = self.spec.assessor is not None, self.reported  # an advisor gets those of running trials
        self._changes.clear()  # later changes may be missing from the history
        past, open_trials, imported, experiment = await self._database.read(
            lambda c: (
                history.ended(c, after=0, until=until, intermediates=assessed),
                history.unfinished(c, until=until),
                history.imported(c),
                experiments.load(c),
            )
        )
        self._results = [result for result in self._results if result["end_order"] > until]
        self._changes = [change for change in self._changes if change[1].get("data") not in imported]
        self.proposals.clear()
        self._withdrawn.clear()
        self._owed = 0
        self.exhausted = False
        expected = {"trials": self.spec.max_trial_number, "concurrency": self.spec.trial_concurrency}
        # for an assessor without a direction in its config
        mode = str(direction.find(self.spec.canonical, experiment.class_direction).mode)
        started = await self._tuner.call(
            "start",
            search_space=self.spec.search_space,
            tuner={**asdict(self.spec.tuner), "expected": expected, "multi_thread": self.spec.multi_thread},
            assessor={**asdict(self.spec.assessor), "direction": mode} if self.spec.assessor else None,
            history=past,
            unfinished=open_trials,
            imported=list(map(imported_results.parsed, imported)),
        )
        self._note_start(started, [trial for trial in open_trials if trial["end_order"] is None])

    def _note_start(self, started: Item, open_trials: Sequence[Item]) -> None:
        """`started`: the answer of a process that has seen no intermediate results; those of open trials are judged
        again."""
        self._has_started = True
        ahead = min(max(self.spec.trial_concurrency, MIN_AHEAD), MAX_AHEAD)
        self.ahead = ahead if started["proposes_ahead"] else 0
        self._watches, self._withdraws = started["watches"], started["withdraws"]
        self._to_judge.clear()
        if self.takes_intermediates:
            self._seen.clear()
            self._to_judge.update((trial["trial_id"], None) for trial in open_trials)

    async def _propose(self) -> None:
        count = self.asked - self._owed
        ids = list(range(self.next_parameter_id, self.next_parameter_id + count))
        answer = await self._tuner.call("propose", ids=ids)
        self._note_stops(answer)
        self.next_parameter_id += count
        owed_before, self._owed = self._owed, answer.get("owed", 0)
        settled = count + owed_before - self._owed
        self.asked -= settled
        items = answer["proposals"]
        made = await self._with_continued(list(map(_proposal, items)), items)
        # no await from here on: the proposals may be taken, and the queue replaced, meanwhile
        if self._changes and (self._withdraws or any(change == "search_space" for change, _ in self._changes)):
            self._withdrawn |= {item["parameter_id"] for item in items}
            self._wake()  # proposals of the old search space, or made without what is known now
            return
        self.proposals.extend(made)
        self.exhausted = len(items) < settled
        if self.exhausted and (self._results or self._changes):  # it did not know these at the request
            self.want(1)
        self._wake()

    async def _with_continued(self, proposals: list[Proposal], items: Sequence[Item]) -> list[Proposal]:
        """The proposals, each with the trial whose configuration it continues."""
        numbers = {one["parameter_id"]: one["continues"] for one in items if one.get("continues") is not None}
        if not numbers:
            return proposals
        found = await self._database.read(lambda c: trials.of_parameter_ids(c, set(numbers.values())))
        return [replace(one, continues=found.get(numbers.get(one.parameter_id, -1), "")) for one in proposals]

    async def _judge(self) -> None:
        """Ended trials are skipped, as `learn` has their values."""
        wanted, self._to_judge = list(self._to_judge), {}
        found = await self._database.read(lambda c: history.open_intermediates(c, wanted))
        attempts = {trial["trial_id"]: trial.pop("attempt") for trial in found}
        seen = {trial_id: self._seen_of(trial_id, attempt) for trial_id, attempt in attempts.items()}
        trials = [{**trial, "from": seen[trial["trial_id"]]} for trial in found]
        new = [trial for trial in trials if len(trial["values"]) > trial["from"]]
        for trial in new:
            self._judgeable.look(trial["trial_id"], trial["values"], has_ended=False)
        if new:
            self._note_stops(await self._tuner.call("judge", trials=new))
            self._seen.update((trial["trial_id"], (attempts[trial["trial_id"]], len(trial["values"]))) for trial in new)

    def _seen_of(self, trial_id: str, attempt: int) -> int:
        """The number of results of this attempt that the current process has seen."""
        known, count = self._seen.get(trial_id, (attempt, 0))
        return count if known == attempt else 0

    def _note_stops(self, answer: Item) -> None:
        """Any answer may name trials that are to be stopped."""
        if stops := answer.get("stop"):
            self.judged_bad += stops
            self._wake()

    async def _survive(self, error: TunerError) -> None:
        """Makes a hold or a restart of the tuner's failure."""
        if not self._has_started and shortage.is_named_in(f"{error} {error.details}"):
            await self._tuner.outlast(error)
            self._work.set()
        elif isinstance(error, TunerRaised):
            log.error("the tuner or assessor failed: %s", error)
            write_text(log, logging.ERROR, "the tuner or assessor", error.details, "tuner")
            await self._fail(HoldCode.TUNER_RAISED, f"the tuner or assessor failed: {error}", error)
        else:
            log.error("%s", error)
            await self._after_death(error)

    async def _after_death(self, error: TunerError) -> None:
        self._deaths.append(now := time.monotonic())
        while now - self._deaths[0] > DEATHS_WITHIN_S:
            self._deaths.popleft()
        if len(self._deaths) >= MAX_DEATHS:
            await self._fail(HoldCode.TUNER_DIED, f"{error}, {len(self._deaths)} times in ten minutes", error)
        else:
            await self._drop_tuner()
            await asyncio.sleep(0.0 if self._has_started else _START_WAITS_S[len(self._deaths) - 1])
            self._work.set()

    async def _fail(self, code: HoldCode, sentence: str, error: TunerError) -> None:
        sentence = f"{sentence.rstrip('.')}; put it right, then resume"
        self.failure = Hold(code=code, sentence=sentence, details=error.details)
        await self._drop_tuner(kill=True)
        self._wake()

    async def _drop_tuner(self, *, kill: bool = False) -> None:
        """Ends the tuner's process; open requests stay queued."""
        await self._tuner.end(kill=kill)
        self.proposals.clear()
        self._owed = 0
        if self.failure is not None:
            self.asked = 0


def _proposal(entry: Item) -> Proposal:
    try:
        json.dumps(entry["parameters"], allow_nan=False)
    except ValueError as error:
        raise TunerRaised(f"a proposal that is not JSON ({error})", repr(entry["parameters"])) from error
    return Proposal(parameter_id=entry["parameter_id"], values=entry["parameters"])
