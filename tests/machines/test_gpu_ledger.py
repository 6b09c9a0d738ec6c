"""GPUs in the ledger: their processes, free memory, names, and the reasons why one is not free."""

from __future__ import annotations

from typing import Any

import pytest

from nni_manager.machines import placement
from nni_manager.machines.gpu_machines import demand_of, gpu_environment, gpu_findings
from nni_manager.machines.gpu_sample import Card, Foreign, GpuSample, in_words
from nni_manager.machines.ledger import ANY_NUMBER, Demand, MachineLedger, Reservation, choose
from nni_manager.machines.waiting_queue import KeeperMachine, Places
from nni_manager.platform_kit.contract import Severity
from tests.machines.gpu_hosts import job

pytestmark = pytest.mark.unit

GIB = 2**30
ONE = Demand(count=1)
ACTIVE = Demand(count=1, use_active=True)


def card(index: int, *foreign: Foreign, uuid: str = "", **fields: Any) -> Card:
    return Card(index=index, uuid=uuid or f"GPU-{index}", memory_bytes=16 * GIB, foreign=foreign, **fields)


def machine(*cards: Card, name: str = "remote:hostA") -> MachineLedger:
    ledger = MachineLedger(name, has_gpus=True)
    ledger.read({})
    ledger.note_reading(GpuSample(cards=cards))
    return ledger


SOMEBODY = Foreign(pid=4242, user="x", memory_bytes=11 * GIB)


def test_foreign_process_blocks_card_without_use_active_gpu() -> None:
    ledger = machine(card(0, SOMEBODY), card(1))
    assert ledger.fitting(ONE) == [1]
    assert ledger.fitting(ACTIVE) == [0, 1]


def test_no_gpu_is_granted_without_a_reading() -> None:
    ledger = MachineLedger("m", has_gpus=True)
    ledger.read({})
    assert ledger.reserve("j", ONE) is None
    assert placement.why_no_place(ledger, ONE) == "the GPUs of m have not been read yet"
    ledger.note_reading(GpuSample(cards=(card(0),)))
    ledger.note_reading(GpuSample(cards=(), error="the driver hangs"))
    assert ledger.reserve("j", ONE) is None
    assert placement.why_no_place(ledger, ONE) == "the GPUs of m cannot be read: the driver hangs"
    assert ledger.reserve("j", Demand(count=0)) is not None, "a broken probe does not block jobs without GPUs"


def test_hidden_process_counts_as_ours_next_to_our_job() -> None:
    hidden = Foreign(pid=7, user="", memory_bytes=None)
    two = Demand(count=1, share=2)
    ledger = machine(card(0))
    assert ledger.reserve("a", two) is not None
    ledger.note_reading(GpuSample(cards=(card(0, hidden),)))
    assert ledger.fitting(two) == [0]
    ledger.release("a")
    assert ledger.fitting(two) == []


def test_memory_packs_the_fullest_card_that_has_enough() -> None:
    ledger = machine(card(0), card(1, foreign_bytes=6 * GIB), card(2, foreign_bytes=13 * GIB))
    four = Demand(count=1, share=ANY_NUMBER, memory_bytes=4 * GIB)
    places = [found.places[0] for n in range(9) if (found := ledger.reserve(f"j{n}", four)) is not None]
    assert places == [1, 1, 0, 0, 0, 0]


def test_used_memory_above_the_demand_counts() -> None:
    ledger = machine(card(0))
    four = Demand(count=1, share=ANY_NUMBER, memory_bytes=4 * GIB)
    ledger.reserve("greedy", four)
    ledger.note_reading(GpuSample(cards=(card(0, used_by_job={"greedy": 13 * GIB}),)))
    assert ledger.fitting(four) == []
    assert placement.why_no_place(ledger, four) == "gpu 0 on hostA has 3 GiB free of the 4 GiB that a trial needs"


def test_renumbered_card_keeps_its_jobs() -> None:
    ledger = machine(card(0, uuid="A"), card(1, uuid="B"))
    assert ledger.reserve("j", Demand(count=1, only=frozenset({0}))) is not None
    ledger.note_reading(GpuSample(cards=(card(0, uuid="B"), card(1, uuid="A"))))
    assert ledger.fitting(ONE) == [0]
    ledger.note_reading(GpuSample(cards=(card(0, uuid="B"),)))
    assert ledger.fitting(ONE) == [0], "its card is gone"


def test_two_names_of_one_machine_share_its_cards() -> None:
    places = Places()
    here = places.machine(KeeperMachine(name="local:this machine", places=None))
    there = places.machine(KeeperMachine(name="remote:me@localhost", places=None))
    for ledger in (here, there):
        ledger.read({})
        places.note_reading(ledger, GpuSample(cards=(card(0), card(1))))
    assert here.reserve("a", ONE) is not None
    assert there.fitting(ONE) == [1]
    assert there.reserve("b", ONE) is not None
    assert here.fitting(ONE) == []


def test_a_reservation_goes_through_the_claim_and_back() -> None:
    ledger = machine(card(0), card(1))
    found = ledger.reserve("j", Demand(count=2, memory_bytes=GIB, share=3))
    assert found is not None and found.place == "hostA, gpu 0, 1"
    assert Reservation.parse(found.as_json()) == found
    old = {"machine": "scripted:m1", "places": [1], "share": 1}
    assert Reservation.parse(old) == Reservation(machine="scripted:m1", places=(1,))
    assert Reservation.parse({}) is None


def test_machine_with_most_room_then_fewest_jobs_is_first() -> None:
    a, b = machine(card(0), card(1), name="a"), machine(card(0, uuid="x"), card(1, uuid="y"), name="b")
    demands = {"a": ONE, "b": Demand(count=1, share=2)}
    assert choose([a, b], demands) is b, "two may share each of its cards"
    a.reserve("cpu", Demand(count=0))
    assert choose([a, b], {"a": Demand(count=0), "b": Demand(count=0)}) is b


@pytest.mark.parametrize(
    ("cards", "demand", "sentence"),
    [
        ((card(0, SOMEBODY),), ONE, "gpu 0 on hostA busy: pid 4242 of user x, 11 GiB"),
        ((card(0, error="GPU is lost"),), ONE, "gpu 0 on hostA is out of order: GPU is lost"),
        ((), ONE, "hostA has no GPU"),
        ((card(0),), Demand(count=2), "hostA has 1 GPU, and a trial needs 2"),
        (
            (card(0), card(1)),
            Demand(count=2, only=frozenset({1})),
            "hostA has 2 GPUs, 1 of them in gpuIndices, and a trial needs 2",
        ),
        (
            (card(0),),
            Demand(count=1, memory_bytes=40 * GIB),
            "the GPUs of hostA have at most 16 GiB, and a trial needs 40 GiB",
        ),
        (
            (card(0), card(1, SOMEBODY)),
            Demand(count=2),
            "1 of the 2 that a trial needs are free: gpu 1 on hostA busy: pid 4242 of user x, 11 GiB",
        ),
        ((card(0),), ONE, ""),
        (
            tuple(card(n, SOMEBODY) for n in range(6)),
            ONE,
            "; ".join(f"gpu {n} on hostA busy: pid 4242 of user x, 11 GiB" for n in range(4)) + "; and 2 more",
        ),
    ],
)
def test_reasons_for_no_gpu(cards: tuple[Card, ...], demand: Demand, sentence: str) -> None:
    assert placement.why_no_place(machine(*cards), demand) == sentence


def test_reason_names_the_jobs_on_a_gpu() -> None:
    ledger = machine(card(0))
    ledger.reserve("nni_exp_e_trial_t", ONE)
    assert placement.why_no_place(ledger, ONE) == "gpu 0 on hostA has nni_exp_e_trial_t"
    shared = machine(card(0))
    for name in ("a", "b"):
        shared.reserve(name, Demand(count=1, share=2))
    sentence = placement.why_no_place(shared, Demand(count=1, share=3))
    assert sentence == "gpu 0 on hostA has 2 of at most 2 trials: a, b"
    assert placement.on_places(shared, ONE) == {"0": {"jobs": ["a", "b"], "processes": [], "limit": 2}}


@pytest.mark.parametrize(
    ("reading", "demand", "severity", "words"),
    [
        (GpuSample(cards=(), error="x", is_absent=True), ONE, Severity.WRONG, "cannot be read: x"),
        (GpuSample(cards=(), error="x"), ONE, Severity.AWAY, "cannot be read: x"),
        (
            GpuSample(cards=(card(0),)),
            Demand(count=1, only=frozenset({3})),
            Severity.WRONG,
            "gpuIndices contains GPU 3",
        ),
        (GpuSample(cards=(card(0),)), Demand(count=2), Severity.WRONG, "a trial needs 2"),
        (GpuSample(cards=(card(0, SOMEBODY),), source="nvml"), ONE, Severity.FINE, "1 read by nvml, 0 free"),
    ],
)
def test_preflight(reading: GpuSample, demand: Demand, severity: Severity, words: str) -> None:
    ledger = MachineLedger("m", has_gpus=True)
    ledger.read({})
    ledger.note_reading(reading)
    [finding] = gpu_findings(ledger, demand)
    assert finding.severity is severity and words in finding.sentence
    assert bool(finding.fix) is (severity is not Severity.FINE)


def test_parsing_of_a_keeper_s_gpu_sample() -> None:
    process = {"pid": 4242, "user": "x", "memory_bytes": 2 * GIB, "is_compute": True, "job": None}
    told = {
        "source": "nvml",
        "error": "",
        "is_absent": False,
        "age_s": 0.1,
        "cards": [
            {
                "index": 0,
                "uuid": "A",
                "name": "H",
                "error": "",
                "memory_bytes": 8 * GIB,
                "used_bytes": 5 * GIB,
                "processes": [
                    process,
                    {**process, "pid": 5, "is_compute": False},
                    {**process, "pid": 6, "job": "ours", "memory_bytes": GIB},
                ],
            }
        ],
    }
    [found] = GpuSample.parse(told).cards
    assert found.foreign == (Foreign(pid=4242, user="x", memory_bytes=2 * GIB),)
    assert (found.foreign_bytes, found.used_by_job) == (4 * GIB, {"ours": GIB})


def test_sizes_as_text() -> None:
    assert [in_words(size) for size in (0, 512 * 2**20, GIB, 3 * GIB // 2)] == ["0 MiB", "512 MiB", "1 GiB", "1.5 GiB"]


def test_cuda_variables_of_a_job() -> None:
    found = Reservation(machine="m", places=(1, 3))
    assert gpu_environment(job("j", None), found) == {}
    assert gpu_environment(job("j", 0), None) == {"CUDA_VISIBLE_DEVICES": ""}
    assert gpu_environment(job("j", 2), found) == {"CUDA_VISIBLE_DEVICES": "1,3", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def test_demand_of_config_fields() -> None:
    def demand(number: int | None, **fields: Any) -> Demand:
        none = dict.fromkeys(("gpu_indices", "max_trial_number_per_gpu", "use_active_gpu"))
        return demand_of(number, **{**none, **fields})

    assert demand(None) == demand(0, gpu_indices=[1]) == Demand(count=0)
    assert demand(2) == Demand(count=2, share=1)
    assert demand(1, gpu_memory_mib=1024) == Demand(count=1, share=ANY_NUMBER, memory_bytes=GIB)
    assert demand(1, gpu_memory_mib=1024, max_trial_number_per_gpu=1).share == 1
    assert demand(1, gpu_indices=[2], use_active_gpu=True) == Demand(count=1, only=frozenset({2}), use_active=True)
