"""Places of machines: never two jobs where one may be, none idle while a job that fits waits."""

from __future__ import annotations

import pytest

from nni_manager.machines.gpu_sample import Card, Foreign
from nni_manager.machines.ledger import Demand, MachineLedger, Reservation, choose
from nni_manager.machines.waiting_queue import OFFER_S, Line
from tests.machines.ledger_load import Load

pytestmark = pytest.mark.unit

ONE = Demand(count=1)
ON_A = {"a": ONE}


def machine(name: str = "a", places: int = 2, *, is_read: bool = True) -> MachineLedger:
    ledger = MachineLedger(name, range(places))
    if is_read:
        ledger.read({})
    return ledger


def test_no_place_is_granted_before_keeper_list() -> None:
    ledger = machine(is_read=False)
    assert ledger.reserve("j1", ONE) is None
    ledger.read({"old": Reservation(machine="a", places=(0,))})
    granted = ledger.reserve("j1", ONE)
    assert granted is not None and granted.places == (1,)
    assert ledger.reserve("j2", ONE) is None


def test_the_same_name_has_the_same_places() -> None:
    ledger = machine()
    assert ledger.reserve("j1", ONE) == ledger.reserve("j1", ONE)
    assert len(ledger.fitting(ONE)) == 1


def test_a_lost_answer_keeps_its_place_until_the_next_list() -> None:
    ledger = machine()
    ledger.reserve("j1", ONE)
    ledger.disconnect()
    assert ledger.reserve("j2", ONE) is None
    ledger.read({})  # it was never started
    assert len(ledger.fitting(ONE)) == 2


def test_start_on_a_new_connection_survives_an_older_list() -> None:
    ledger = machine()
    ledger.reserve("j1", ONE)
    ledger.disconnect()
    ledger.reserve("j1", ONE)  # submitted again, while the list is on its way
    ledger.read({})
    assert ledger.has("j1")


def test_a_place_has_the_least_limit_of_its_users() -> None:
    ledger = machine(places=1)
    shared, alone = Demand(count=1, share=2), ONE
    assert ledger.reserve("j1", shared) is not None
    assert ledger.reserve("j2", alone) is None
    assert ledger.reserve("j3", shared) is not None
    assert ledger.reserve("j4", Demand(count=1, share=3)) is None


def test_allowed_and_blocked_places() -> None:
    ledger = machine(places=4)
    ledger.cards = {2: Card(index=2, foreign=(Foreign(pid=4242, user="x", memory_bytes=None),))}
    assert ledger.fitting(Demand(count=1, only=frozenset({2, 3}))) == [3]


def test_machine_with_most_free_places_is_first() -> None:
    a, b, c = machine("a", 2), machine("b", 3), machine("c", 3)
    assert choose([a, b, c], {name: ONE for name in "abc"}) is b
    b.reserve("j1", ONE)
    assert choose([a, b, c], {name: ONE for name in "abc"}) is c


def test_job_without_places_fits_on_full_machine() -> None:
    full = machine(places=0)
    assert choose([full], {"a": Demand(count=0)}) is full
    line = Line({"a": full}, lambda: 0.0)
    assert line.room("x", {"a": Demand(count=0)}) > 0
    assert line.reserve("x", "j1", {"a": Demand(count=0)}) == Reservation(machine="a")


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_free_place_goes_to_the_longest_waiting_experiment() -> None:
    ledger, clock, woken = machine(places=1), Clock(), []
    line = Line({"a": ledger}, clock)
    assert line.reserve("x", "x1", ON_A) is not None
    line.want("y", 1, ON_A, lambda: woken.append("y"))
    line.want("x", 5, ON_A, lambda: woken.append("x"))
    ledger.release("x1")
    line.offer()
    assert woken == ["y"]
    assert line.room("x", ON_A) == 0
    assert line.reserve("x", "x2", ON_A) is None
    assert line.reserve("y", "y1", ON_A) is not None


def test_expired_offer_goes_to_the_next_experiment() -> None:
    ledger, clock, woken = machine(places=1), Clock(), []
    line = Line({"a": ledger}, clock)
    for owner in ("y", "x"):
        line.want(owner, 1, ON_A, lambda owner=owner: woken.append(owner))
    assert woken == ["y"]
    assert line.next_offer_ends_s == OFFER_S
    clock.now_s = OFFER_S
    line.offer()
    assert woken == ["y", "x"]
    assert line.reserve("x", "x1", ON_A) is not None


def test_experiment_without_waiting_jobs_leaves_the_line() -> None:
    ledger, woken = machine(places=1), []
    line = Line({"a": ledger}, Clock())
    line.want("y", 1, ON_A, lambda: woken.append("y"))
    line.want("x", 1, ON_A, lambda: woken.append("x"))
    line.want("y", 0, ON_A, lambda: None)
    assert woken == ["y", "x"]


@pytest.mark.parametrize("has_gpus", [False, True], ids=["places", "cards"])
@pytest.mark.parametrize("block", range(10))
def test_random_loads(block: int, has_gpus: bool) -> None:
    """With crashes, lost answers and unread machines; what must hold is checked at every moment. A thousand of places;
    of cards, which cost more, a quarter of that."""
    seeds = 25 if has_gpus else 100
    for seed in range(seeds * block, seeds * (block + 1)):
        load = Load(seed, has_gpus=has_gpus)
        try:
            load.run()
        except AssertionError as error:
            raise AssertionError(f"load {seed}: {error}") from error
