"""What is asked of a tuner's process and when, whatever becomes of the process."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nni_manager.domain.algorithm import AlgorithmSpec
from nni_manager.domain.errors import TunerDied, TunerError, TunerRaised
from nni_manager.domain.experiment import PASSING_HOLDS, HoldCode
from nni_manager.scheduler.tuning import feed, watched_tuner
from nni_manager.store.connection import Connection, connect
from nni_manager.store.database import Database
from nni_manager.store.experiment import experiments
from tests.scheduler.fake_tuner import Script, died, feeding, raised
from tests.scheduler.pictures import spec
from tests.store import life

pytestmark = [pytest.mark.unit, pytest.mark.timeout(20)]

Patch = pytest.MonkeyPatch
ASSESSED = spec(assessor=AlgorithmSpec(name="Medianstop"))


def result(order: int, id: str = "aaaaa", value: float = 0.5) -> dict[str, Any]:
    return {
        "trial_id": id,
        "parameter_id": order,
        "parameters": {},
        "source": "algorithm",
        "status": "SUCCEEDED",
        "value": value,
        "end_order": order,
        "intermediates": [],
    }


def end_trial(path: Path, id: str, number: int, *values: float) -> None:
    """A trial that reported `values` and ended."""
    connection = connect(path)
    life.add(connection, id, number)
    life.report(connection, life.start(connection, id), *map(life.intermediate, values), life.final(0.5))
    life.end(connection, id)
    connection.close()


def run_trial(path: Path, id: str, *values: object) -> None:
    connection = connect(path)
    life.add(connection, id)
    life.report(connection, life.start(connection, id), *map(life.intermediate, values))
    connection.close()


async def test_no_process_before_it_is_needed(monkeypatch: Patch, path: Path) -> None:
    async with feeding(monkeypatch, path, spec()) as at:
        at.feed.tell([result(1)])
        at.feed.judge("aaaaa")
        at.feed.rest()
        at.feed.want(1)
        await at.proposed(1)
        assert at.script.verbs == ["1:start", "1:propose"]


async def test_proposals_come_in_order_and_no_number_twice(monkeypatch: Patch, path: Path) -> None:
    async with feeding(monkeypatch, path, spec()) as at:
        at.feed.next_parameter_id = 5
        at.feed.want(2)
        at.feed.want(1)
        assert await at.proposed(3) == [5, 6, 7]
        at.feed.take({5, 7})
        at.feed.want(1)
        assert await at.proposed(2) == [6, 8]
        assert (at.feed.asked, at.feed.exhausted) == (0, False)
        assert [proposal.values for proposal in at.feed.proposals] == [{"x": 6}, {"x": 8}]


@pytest.mark.parametrize(
    ("ahead", "concurrency", "expected"), [(False, 4, 0), (True, 4, 16), (True, 20, 20), (True, 500, 32)]
)
async def test_proposals_are_requested_ahead_of_need(
    monkeypatch: Patch, path: Path, ahead: bool, concurrency: int, expected: int
) -> None:
    script = Script()
    script.proposes_ahead = ahead
    async with feeding(monkeypatch, path, spec(trial_concurrency=concurrency), script) as at:
        at.feed.want(1)
        await at.proposed(1)
        assert at.feed.ahead == expected


@pytest.mark.parametrize("deprecated", [{"multiThread": True}, None])
async def test_multi_thread_reaches_the_process(monkeypatch: Patch, path: Path, deprecated: object) -> None:
    canonical = {"tuner": {"className": "mine.Tuner"}, "deprecated": deprecated}
    async with feeding(monkeypatch, path, spec(canonical=canonical)) as at:
        at.feed.want(1)
        await at.proposed(1)
        assert at.script.of("start")[0]["tuner"]["multi_thread"] == bool(deprecated)


async def test_tuner_gets_budget_and_concurrency(monkeypatch: Patch, path: Path) -> None:
    async with feeding(monkeypatch, path, spec(trial_concurrency=3, max_trial_number=70)) as at:
        at.feed.want(1)
        await at.proposed(1)
        (start,) = at.script.of("start")
        assert start["tuner"]["expected"] == {"trials": 70, "concurrency": 3}


async def test_history_is_sent_once_per_process(monkeypatch: Patch, path: Path) -> None:
    end_trial(path, "aaaaa", 0, 0.1)
    end_trial(path, "bbbbb", 1)
    run_trial(path, "ccccc")
    async with feeding(monkeypatch, path, spec(), told=1) as at:
        at.feed.want(1)
        at.feed.tell([result(2, "bbbbb")])
        await at.proposed(1)
        (start,) = at.script.of("start")
        assert [item["trial_id"] for item in start["history"]] == ["aaaaa", "bbbbb"]
        assert [item["trial_id"] for item in start["unfinished"]] == ["ccccc"]
        assert at.script.of("learn") == []
        at.feed.tell([result(3, "ccccc")])
        await at.until(lambda: at.script.of("learn"))
        assert [item["end_order"] for item in at.script.of("learn")[0]["results"]] == [3]


async def test_trial_ended_during_tuner_restart_precedes_result(monkeypatch: Patch, path: Path) -> None:
    """Else a tuner that counts its trials, as brackets do, would not know whose result it is."""
    end_trial(path, "aaaaa", 0)
    end_trial(path, "bbbbb", 1)  # its result is not handed over yet
    async with feeding(monkeypatch, path, spec(), told=1) as at:
        at.feed.want(1)
        await at.proposed(1)
        (start,) = at.script.of("start")
        assert [item["trial_id"] for item in start["history"]] == ["aaaaa"]
        assert [item["trial_id"] for item in start["unfinished"]] == ["bbbbb"]
        at.feed.tell([result(2, "bbbbb")])
        await at.until(lambda: at.script.of("learn"))


async def test_results_come_before_the_next_proposal(monkeypatch: Patch, path: Path) -> None:
    async with feeding(monkeypatch, path, spec()) as at:
        at.feed.want(1)
        await at.proposed(1)
        at.feed.want(1)
        at.feed.tell([result(1), result(2)])
        await at.proposed(2)
        assert at.script.verbs == ["1:start", "1:propose", "1:learn", "1:propose"]


@pytest.mark.parametrize("verb", ["start", "propose", "learn"])
async def test_restarted_process_gets_every_result_once(monkeypatch: Patch, path: Path, verb: str) -> None:
    monkeypatch.setattr(feed, "_START_WAITS_S", (0.0, 0.0))
    script = Script()
    async with feeding(monkeypatch, path, spec(), script) as at:
        at.feed.want(1)
        await at.proposed(1)
        end_trial(path, "aaaaa", 0)
        end_trial(path, "bbbbb", 1)
        script.next[verb] = [died()]
        if verb == "start":
            script.next["learn"] = [died()]
        at.feed.tell([result(1, "aaaaa"), result(2, "bbbbb")])
        at.feed.want(2)
        await at.proposed(2)
        last = script.started
        assert last == (3 if verb == "start" else 2)
        heard = [
            item["end_order"]
            for number, name, arguments in script.calls
            if number == last and name in ("start", "learn")
            for item in arguments.get("history", arguments.get("results"))
        ]
        assert heard == [1, 2]
        assert at.feed.failure is None
        assert [number for number, _ in script.closed] == list(range(1, last))


async def test_owed_proposals_are_fetched_when_they_are_ready(monkeypatch: Patch, path: Path) -> None:
    script = Script()
    script.next["propose"] = [
        {"proposals": [{"parameter_id": 0, "parameters": {"x": 0}}], "owed": 2},
        {"proposals": [{"parameter_id": 2, "parameters": {"x": 2}}], "owed": 1},
        {"proposals": []},  # the class has no more
    ]
    async with feeding(monkeypatch, path, spec(), script) as at:
        at.feed.want(3)
        assert await at.proposed(1) == [0]
        assert (at.feed.asked, at.feed.exhausted) == (2, False)
        script.on_news()
        assert await at.proposed(2) == [0, 2]
        assert (at.feed.asked, at.feed.exhausted) == (1, False)
        script.on_news()
        await at.until(lambda: at.feed.exhausted)
        assert at.feed.asked == 0
        assert [one["ids"] for one in script.of("propose")] == [[0, 1, 2], [], []]


async def test_three_deaths_are_a_hold(monkeypatch: Patch, path: Path) -> None:
    script = Script()
    script.next["propose"] = [died(), died(), died()]
    async with feeding(monkeypatch, path, spec(), script) as at:
        at.feed.want(4)
        await at.until(lambda: at.feed.failure)
        failure = at.feed.failure
        assert failure is not None and failure.code is HoldCode.TUNER_DIED
        assert "3 times in ten minutes; put it right, then resume" in failure.sentence
        assert (script.started, at.feed.asked) == (3, 0)
        await at.feed.reset()
        assert at.feed.failure is None
        at.feed.want(1)
        await at.proposed(1)
        assert script.started == 4


async def test_start_without_a_free_process_is_tried_again(monkeypatch: Patch, path: Path) -> None:
    monkeypatch.setattr(watched_tuner, "WAITS_S", (0.01,))
    script = Script()
    script.shortages = 20
    async with feeding(monkeypatch, path, spec(), script) as at:
        at.feed.want(2)
        await at.until(lambda: at.feed.silence)
        silence = at.feed.silence
        assert silence is not None and silence.code in PASSING_HOLDS
        assert "Resource temporarily unavailable; retrying until it succeeds" in silence.sentence
        await at.proposed(2)
        assert (script.started, script.shortages, at.feed.silence, at.feed.failure) == (1, 0, None, None)


@pytest.mark.parametrize(
    "last_words",
    [
        "OpenBLAS blas_thread_init: pthread_create failed for thread 1 of 2: Resource temporarily unavailable",
        "RuntimeError: can't start new thread",
        "self.pid = os.fork()\nBlockingIOError: [Errno 11] Resource temporarily unavailable",
    ],
)
@pytest.mark.parametrize("error", [TunerDied, TunerRaised])
async def test_shortage_before_the_first_answer_is_waited_for(
    monkeypatch: Patch, path: Path, error: type[TunerError], last_words: str
) -> None:
    monkeypatch.setattr(watched_tuner, "WAITS_S", (0.01,))
    script = Script()
    script.next["start"] = [error("the tuner's process ended (exit code 1)", last_words) for _ in range(9)]
    async with feeding(monkeypatch, path, spec(), script) as at:
        at.feed.want(1)
        await at.until(lambda: at.feed.silence)
        assert at.feed.silence is not None and "raise the limits of processes" in at.feed.silence.sentence
        await at.proposed(1)
        assert (script.started, at.feed.silence, at.feed.failure) == (10, None, None)


async def test_locked_file_of_a_class_is_not_a_shortage(monkeypatch: Patch, path: Path) -> None:
    script = Script()
    details = "fcntl.flock(file, fcntl.LOCK_NB)\nBlockingIOError: [Errno 11] Resource temporarily unavailable"
    script.next["start"] = [TunerRaised("BlockingIOError: [Errno 11]", details)]
    async with feeding(monkeypatch, path, spec(), script) as at:
        at.feed.want(1)
        await at.until(lambda: at.feed.failure)


async def test_tuner_killed_at_its_start_is_restarted_later(monkeypatch: Patch, path: Path) -> None:
    monkeypatch.setattr(feed, "_START_WAITS_S", (0.3, 0.3))
    script = Script()
    script.next["start"] = [died(), died()]
    async with feeding(monkeypatch, path, spec(), script) as at:
        at.feed.want(1)
        begun_s = time.monotonic()
        await at.proposed(1)
        assert time.monotonic() - begun_s >= 0.6 and script.started == 3


async def test_shortage_after_the_first_answer_is_a_failure(monkeypatch: Patch, path: Path) -> None:
    """The algorithm itself may have used everything up."""
    script = Script()
    script.next["propose"] = [TunerRaised("RuntimeError: can't start new thread")]
    async with feeding(monkeypatch, path, spec(), script) as at:
        at.feed.want(1)
        await at.until(lambda: at.feed.failure)


@pytest.mark.parametrize("verb", ["start", "propose", "learn"])
async def test_an_exception_is_a_hold_with_its_traceback(monkeypatch: Patch, path: Path, verb: str) -> None:
    script = Script()
    async with feeding(monkeypatch, path, spec(), script) as at:
        if verb == "learn":
            at.feed.want(1)
            await at.proposed(1)
        script.next[verb] = [raised("KeyError: 'lr'.")]
        at.feed.want(1)
        at.feed.tell([result(1)])
        await at.until(lambda: at.feed.failure)
        failure = at.feed.failure
        assert failure is not None
        assert (failure.code, failure.details) == (HoldCode.TUNER_RAISED, "Traceback: KeyError: 'lr'.")
        assert failure.sentence == "the tuner or assessor failed: KeyError: 'lr'; put it right, then resume"
        assert (at.feed.asked, list(at.feed.proposals)) == (0, [])
        await at.until(lambda: script.closed)
        assert script.closed == [(1, True)]
        at.feed.want(1)
        at.feed.tell([result(2)])
        await at.feed.reset()
        await at.proposed(1)


async def test_a_proposal_no_trial_could_read_is_the_tuners_fault(monkeypatch: Patch, path: Path) -> None:
    script = Script()
    script.next["propose"] = [{"proposals": [{"parameter_id": 0, "parameters": {"x": math.nan}}]}]
    async with feeding(monkeypatch, path, spec(), script) as at:
        at.feed.want(1)
        await at.until(lambda: at.feed.failure)
        assert at.feed.failure is not None and at.feed.failure.code is HoldCode.TUNER_RAISED
        assert "not JSON" in at.feed.failure.sentence


async def test_silence_is_said_with_a_stack_and_ends_by_itself(monkeypatch: Patch, path: Path) -> None:
    script = Script()
    script.next["propose"] = ["silence"]
    async with feeding(monkeypatch, path, spec(), script) as at:
        at.feed.want(1)
        await at.until(lambda: at.feed.silence and at.feed.silence.details)
        silence = at.feed.silence
        assert silence is not None and silence.code is HoldCode.TUNER_SILENT
        assert silence.sentence == "the tuner has not answered `propose` for 60 s; resume restarts it"
        assert silence.details == "File tuner.py, line 7"
        script.speak.set()
        await at.proposed(1)
        assert (at.feed.silence, at.feed.failure) == (None, None)


async def test_resuming_replaces_a_silent_process(monkeypatch: Patch, path: Path) -> None:
    script = Script()
    script.next["propose"] = ["silence"]
    async with feeding(monkeypatch, path, spec(), script) as at:
        at.feed.want(2)
        await at.until(lambda: at.feed.silence)
        await at.feed.reset()
        assert await at.proposed(2) == [0, 1]
        assert (script.started, at.feed.silence, at.feed.failure, at.feed.asked) == (2, None, None, 0)


async def test_resuming_while_a_process_starts_is_survived(monkeypatch: Patch, path: Path) -> None:
    reads, may_read = asyncio.Event(), asyncio.Event()

    class Slow(Database):
        async def read(self, function: Callable[[Connection], Any]) -> Any:
            reads.set()
            await may_read.wait()
            return await super().read(function)

    async with feeding(monkeypatch, path, spec(), database_class=Slow) as at:
        at.feed.want(1)
        await reads.wait()
        await at.feed.reset()
        may_read.set()
        await at.proposed(1)
        assert at.script.verbs == ["2:start", "2:propose"]
        assert at.feed.failure is None


async def test_exhausted_tuner_can_propose_after_result(monkeypatch: Patch, path: Path) -> None:
    script = Script()
    script.left = 1
    async with feeding(monkeypatch, path, spec(), script) as at:
        at.feed.want(3)
        await at.until(lambda: at.feed.exhausted)
        assert await at.proposed(1) == [0]
        at.feed.take({0})
        at.feed.tell([result(1)])
        assert at.feed.asked == 1
        await at.until(lambda: at.feed.asked == 0)
        assert at.feed.exhausted and not at.feed.proposals
        script.left = 5
        at.feed.tell([result(2)])
        await at.proposed(1)
        assert not at.feed.exhausted


async def test_late_result_is_learned_before_tuner_is_exhausted(monkeypatch: Patch, path: Path) -> None:
    script = Script()
    script.left = 0
    script.next["propose"] = ["silence"]
    async with feeding(monkeypatch, path, spec(), script) as at:
        at.feed.want(1)
        await at.until(lambda: script.of("propose"))
        at.feed.tell([result(1)])
        script.speak.set()
        await at.until(lambda: script.verbs == ["1:start", "1:propose", "1:learn", "1:propose"])


async def test_new_search_space_drops_old_proposals(monkeypatch: Patch, path: Path) -> None:
    async with feeding(monkeypatch, path, spec()) as at:
        at.feed.want(2)
        await at.proposed(2)
        at.change_search_space({"y": 1})
        assert not at.feed.proposals
        at.feed.want(1)
        assert await at.proposed(1) == [2]
        assert at.script.verbs == ["1:start", "1:propose", "1:search_space", "1:propose"]
        assert at.script.of("search_space") == [{"search_space": {"y": 1}, "withdrawn": [0, 1]}]


async def test_import_withdraws_unused_proposals(monkeypatch: Patch, path: Path) -> None:
    script = Script()
    script.withdraws = True
    async with feeding(monkeypatch, path, spec(), script) as at:
        at.feed.want(3)
        await at.proposed(3)
        at.feed.take({0})
        at.feed.import_data([{"parameter": {"x": 1}, "value": 1}])
        assert not at.feed.proposals
        await at.until(lambda: script.of("import"))
        assert script.of("import")[0]["withdrawn"] == [1, 2]
        at.feed.want(1)
        await at.proposed(1)
        at.feed.adopt("given", {"x": 7})
        await at.until(lambda: script.of("adopt"))
        (adopted,) = script.of("adopt")
        assert adopted["withdrawn"] == [3]
        assert [trial["parameters"] for trial in adopted["trials"]] == [{"x": 7}]


async def test_proposals_arrive_though_the_queue_is_replaced_meanwhile(monkeypatch: Patch, path: Path) -> None:
    script = Script()
    async with feeding(monkeypatch, path, spec(), script) as at:
        with_continued, is_reading, go_on = at.feed._with_continued, asyncio.Event(), asyncio.Event()

        async def slow(*arguments: Any) -> Any:
            is_reading.set()
            await go_on.wait()
            return await with_continued(*arguments)

        monkeypatch.setattr(at.feed, "_with_continued", slow)
        at.feed.want(2)
        await asyncio.wait_for(is_reading.wait(), 5)
        at.feed.take(set())
        go_on.set()
        await at.proposed(2)


async def test_user_trial_reaches_tuner_with_pending_answer(monkeypatch: Patch, path: Path) -> None:
    script = Script()
    async with feeding(monkeypatch, path, spec(), script) as at:
        at.feed.adopt("given", {"x": 7})
        at.feed.want(1)
        await at.proposed(1)
        at.feed.adopt("other", {"x": 8})
        await at.until(lambda: script.of("adopt"))
        (adopted,) = script.of("adopt")
        assert [trial["parameters"] for trial in adopted["trials"]] == [{"x": 8}], "the history has the first"


async def test_proposals_that_become_trials_are_not_withdrawn(monkeypatch: Patch, path: Path) -> None:
    script = Script()
    script.withdraws = True
    async with feeding(monkeypatch, path, spec(), script) as at:
        at.feed.want(3)
        await at.proposed(3)
        with at.feed.lending():
            at.feed.import_data([{"parameter": {"x": 1}, "value": 1}])
            await asyncio.sleep(0.01)
            assert not script.of("import")
            at.feed.take({0, 2})
        await at.until(lambda: script.of("import"))
        assert script.of("import")[0]["withdrawn"] == [1]


async def test_import_leaves_the_proposals_of_other_tuners(monkeypatch: Patch, path: Path) -> None:
    async with feeding(monkeypatch, path, spec()) as at:
        at.feed.want(2)
        await at.proposed(2)
        at.feed.import_data([{"parameter": {"x": 1}, "value": 1}])
        at.feed.adopt("given", {"x": 7})
        await at.until(lambda: at.script.of("adopt"))
        assert len(at.feed.proposals) == 2
        assert not any("withdrawn" in one for one in (*at.script.of("import"), *at.script.of("adopt")))
        assert at.script.of("import") == [{"data": [{"parameter": {"x": 1}, "value": 1}]}]


async def test_a_proposal_that_crosses_a_new_search_space_is_dropped(monkeypatch: Patch, path: Path) -> None:
    script = Script()
    script.next["propose"] = ["silence"]
    async with feeding(monkeypatch, path, spec(), script) as at:
        at.feed.want(1)
        await at.until(lambda: script.of("propose"))
        at.change_search_space({"y": 1})
        script.speak.set()
        await at.until(lambda: script.of("search_space"))
        assert (list(at.feed.proposals), at.feed.asked) == ([], 0)
        at.feed.want(1)
        assert await at.proposed(1) == [1]


async def test_a_search_space_the_tuner_refuses_is_a_hold(monkeypatch: Patch, path: Path) -> None:
    script = Script()
    async with feeding(monkeypatch, path, spec(), script) as at:
        at.feed.want(1)
        await at.proposed(1)
        script.next["search_space"] = [raised("ValueError: y")]
        at.change_search_space({"y": 1})
        await at.until(lambda: at.feed.failure)
        await at.feed.reset()
        at.feed.want(1)
        await at.proposed(1)
        assert script.of("start")[-1]["search_space"] == {"y": 1}
        assert len(script.of("search_space")) == 1


async def test_imports_reach_a_running_process_and_the_next(monkeypatch: Patch, path: Path) -> None:
    data = [{"parameter": {"x": 1}, "value": 2}]
    async with feeding(monkeypatch, path, spec()) as at:
        at.feed.want(1)
        await at.proposed(1)
        at.feed.import_data(data)
        await at.until(lambda: at.script.of("import"))
        assert at.script.of("import") == [{"data": data}]


async def test_imported_values_that_are_json_text_are_parsed(monkeypatch: Patch, path: Path) -> None:
    stored = [{"parameter": {"x": 1}, "value": text} for text in ("1.98", '{"default": 2}', "no JSON")]
    parsed = [{"parameter": {"x": 1}, "value": value} for value in (1.98, {"default": 2}, "no JSON")]
    connection = connect(path)
    experiments.add_import(connection, json.dumps(stored), 1)
    connection.close()
    async with feeding(monkeypatch, path, spec()) as at:
        at.feed.import_data(stored)  # is in the history, too: told once
        at.feed.want(1)
        await at.proposed(1)
        assert at.script.of("start")[0]["imported"] == [parsed]
        at.feed.import_data(stored[:1])
        await at.until(lambda: at.script.of("import"))
        assert at.script.of("import") == [{"data": parsed[:1]}]


async def test_only_new_intermediates_are_judged(monkeypatch: Patch, path: Path) -> None:
    run_trial(path, "aaaaa", 0.1, 0.2)
    async with feeding(monkeypatch, path, ASSESSED) as at:
        at.feed.judge("aaaaa")
        await at.until(lambda: at.script.of("judge"))
        at.feed.judge("aaaaa")
        connection = connect(path)
        name = "nni_exp_exp1_trial_aaaaa"
        life.report(connection, name, life.intermediate(-1), start=20)
        connection.close()
        at.feed.judge("aaaaa")
        await at.until(lambda: at.feed.judged_bad)
        asked = [trial for call in at.script.of("judge") for trial in call["trials"]]
        assert asked == [
            {"trial_id": "aaaaa", "parameter_id": 0, "values": [0.1, 0.2], "from": 0},
            {"trial_id": "aaaaa", "parameter_id": 0, "values": [0.1, 0.2, -1.0], "from": 2},
        ]
        assert at.feed.judged_bad == ["aaaaa"]


ADVISED = spec(tuner=AlgorithmSpec(class_name="mine.Mine", code_directory="/mine"))


async def test_watching_tuner_gets_intermediates_and_stops_trials(monkeypatch: Patch, path: Path) -> None:
    run_trial(path, "aaaaa", 0.1, -1)
    script = Script()
    script.watches = True
    script.next["propose"] = [{"proposals": [], "stop": ["bbbbb"]}]
    script.next["learn"] = [{"stop": ["ccccc"]}]
    async with feeding(monkeypatch, path, ADVISED, script) as at:
        at.feed.judge("aaaaa")
        await at.until(lambda: at.feed.judged_bad)
        at.feed.want(1)
        await at.until(lambda: len(at.feed.judged_bad) == 2)
        at.feed.tell([{"trial_id": "zzzzz", "end_order": 9}])
        await at.until(lambda: len(at.feed.judged_bad) == 3)
        assert at.feed.judged_bad == ["aaaaa", "bbbbb", "ccccc"] and at.feed.takes_intermediates


async def test_non_watching_user_tuner_gets_no_intermediates(monkeypatch: Patch, path: Path) -> None:
    run_trial(path, "aaaaa", 0.1)
    async with feeding(monkeypatch, path, ADVISED) as at:
        assert at.feed.takes_intermediates, "it may be an advisor"
        at.feed.want(1)
        await at.proposed(1)
        at.feed.judge("aaaaa")
        at.feed.want(1)
        await at.proposed(2)
        assert not at.feed.takes_intermediates and not at.script.of("judge")


async def test_ended_trial_is_not_judged(monkeypatch: Patch, path: Path) -> None:
    """Its last values and its end are stored together; the delivery reports them after the end was sent."""
    run_trial(path, "aaaaa", 0.1)
    run_trial(path, "bbbbb", -1)
    with closing(connect(path)) as connection:
        life.end(connection, "aaaaa")
    async with feeding(monkeypatch, path, ASSESSED) as at:
        at.feed.tell([result(1)])
        for trial_id in ("aaaaa", "bbbbb"):
            at.feed.judge(trial_id)
        await at.until(lambda: at.feed.judged_bad)
        asked = [trial["trial_id"] for call in at.script.of("judge") for trial in call["trials"]]
        assert asked == ["bbbbb"]


@pytest.mark.parametrize(
    ("values", "is_told"),
    [
        ([{"accuracy": 0.5}, {"accuracy": 0.6}, {"default": "0.7"}], True),
        ([{"accuracy": 0.5}, {"accuracy": 0.6, "default": 1}, {}], False),
        ([0.5], False),
        ([], False),
    ],
)
async def test_results_that_cannot_be_judged_warn_once(
    monkeypatch: Patch, path: Path, caplog: pytest.LogCaptureFixture, values: list[Any], is_told: bool
) -> None:
    async with feeding(monkeypatch, path, ASSESSED) as at:
        at.feed.tell([{**result(1), "intermediates": values}])
        at.feed.tell([{**result(2), "intermediates": values}])
        assert [one.code for one in at.warnings] == (["NOTHING_TO_JUDGE"] if is_told else [])
        assert caplog.text.count("Medianstop cannot judge trials") == is_told


async def test_running_trial_that_cannot_be_judged_warns(monkeypatch: Patch, path: Path) -> None:
    run_trial(path, "aaaaa", *({"accuracy": 0.5},) * 3)
    async with feeding(monkeypatch, path, ASSESSED) as at:
        at.feed.judge("aaaaa")
        await at.until(lambda: at.warnings)
        assert "trial aaaaa" in at.warnings[0].message and "`default`" in at.warnings[0].message


async def test_user_class_judges_any_result(monkeypatch: Patch, path: Path) -> None:
    own = spec(assessor=AlgorithmSpec(class_name="mine.Assessor"))
    async with feeding(monkeypatch, path, own) as at:
        at.feed.tell([{**result(1), "intermediates": [{"accuracy": 0.5}]}])
        assert at.warnings == []


async def test_no_trial_is_judged_without_assessor(monkeypatch: Patch, path: Path) -> None:
    run_trial(path, "aaaaa", 0.1)
    async with feeding(monkeypatch, path, spec()) as at:
        at.feed.judge("aaaaa")
        at.feed.want(1)
        await at.proposed(1)
        assert at.script.of("judge") == []
        assert at.script.of("start")[0]["assessor"] is None


async def test_new_process_judges_running_trials(monkeypatch: Patch, path: Path) -> None:
    run_trial(path, "aaaaa", -1)
    async with feeding(monkeypatch, path, ASSESSED) as at:
        at.feed.want(1)
        await at.until(lambda: at.feed.judged_bad)
        assert at.feed.judged_bad == ["aaaaa"]


async def test_done_experiment_sends_all_results_and_ends_the_process(monkeypatch: Patch, path: Path) -> None:
    async with feeding(monkeypatch, path, spec()) as at:
        at.feed.want(1)
        await at.proposed(1)
        at.feed.tell([result(1)])
        at.feed.rest()
        await at.until(lambda: at.script.closed)
        assert at.script.verbs == ["1:start", "1:propose", "1:learn"]
        assert at.script.closed == [(1, False)]
        at.feed.want(1)
        await at.proposed(1)
        assert at.script.started == 2


async def test_a_users_class_stays_at_the_end(monkeypatch: Patch, path: Path) -> None:
    """Raising a limit of what is done continues it; a fresh instance might begin from nothing."""
    users = replace(spec(), tuner=AlgorithmSpec(class_name="mine.Tuner", code_directory="/code"))
    async with feeding(monkeypatch, path, users) as at:
        at.feed.want(1)
        await at.proposed(1)
        at.feed.tell([result(1)])
        at.feed.rest()
        at.feed.want(1)
        await at.proposed(2)
        assert at.script.started == 1 and at.script.closed == []


async def test_leaving_ends_the_process(monkeypatch: Patch, path: Path) -> None:
    async with feeding(monkeypatch, path, spec()) as at:
        at.feed.want(1)
        await at.proposed(1)
    assert at.script.closed == [(1, False)]
