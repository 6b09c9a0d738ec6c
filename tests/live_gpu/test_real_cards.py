"""Whole and shared cards, other processes, kills and MIG on real cards, checked by the trials' notes."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.numbered import ENVIRONMENT
from tests.live_daemon import Daemon, end_all
from tests.live_gpu.conftest import TRIAL
from tests.live_gpu.journal import Journal
from tests.platforms.remote.ssh_machines import InProcessMachine, SshMachine
from tests.waiting import until
from trial_runner import gpu_probe
from trial_runner.gpu_probe import Nvml

pytestmark = [pytest.mark.live_gpu, pytest.mark.timeout(240)]

_MIB = 2**20
#: Variables by which processes find the driver.
_OF_DRIVER = ("LD_LIBRARY_PATH", "FAKE_DRIVER")
_NONE: Mapping[str, str] = {}
Json = dict[str, Any]


def _create(
    daemon: Daemon,
    code: Path,
    journal: Journal,
    cards: Sequence[Json],
    *,
    trials: int,
    at_once: int,
    seconds: float = 0.5,
    mib: int = 256,
    **service: Any,
) -> str:
    section = {"platform": "local", "useActiveGpu": False, "gpuIndices": [card["index"] for card in cards], **service}
    config = _experiment(
        f"{sys.executable} hold_card.py {journal.path} {seconds} {mib}", trials=trials, at_once=at_once
    )
    given = {name: value for name, value in section.items() if value is not None}
    return daemon.create({**config, "trainingService": given}, code, ENVIRONMENT)


def _experiment(command: str, *, trials: int, at_once: int) -> Json:
    return {
        "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
        "trialCommand": command,
        "trialCodeDirectory": ".",
        "trialConcurrency": at_once,
        "maxTrialNumber": trials,
        "tuner": {"name": "Random"},
    }


def _trials(daemon: Daemon, id: str) -> list[Json]:
    return list(daemon.call("GET", f"/experiments/{id}/trials")["trials"])


def _assert_all_succeeded(daemon: Daemon, id: str, cards_each: int) -> None:
    daemon.wait(id, "DONE", timeout_s=150)
    assert {(trial["status"], trial["finalValue"]) for trial in _trials(daemon, id)} == {("SUCCEEDED", cards_each)}


def test_driver_and_nvidia_smi_agree(cards: list[Json]) -> None:
    nvml = Nvml()
    by_library = {card["uuid"]: card for card in nvml.cards()}
    nvml.close()
    by_command = {card["uuid"]: card for card in gpu_probe.cards_by_program()}
    identity = ("index", "name", "memory_bytes")
    assert {uuid: [card[name] for name in identity] for uuid, card in by_command.items()} == {
        uuid: [card[name] for name in identity] for uuid, card in by_library.items()
    }
    for uuid in (card["uuid"] for card in cards):  # nvidia-smi rounds
        assert abs(by_command[uuid]["used_bytes"] - by_library[uuid]["used_bytes"]) <= 2 * _MIB


def test_whole_cards(daemon: Daemon, code: Path, journal: Journal, cards: list[Json]) -> None:
    trials = 3 * len(cards) + 2
    id_ = _create(daemon, code, journal, cards, trials=trials, at_once=len(cards) + 2, trialGpuNumber=1)
    _assert_all_succeeded(daemon, id_, 1)
    assert len(journal.stays()) == trials
    assert set(journal.most_on_a_card().values()) == {1}
    assert len(journal.most_on_a_card()) == len(cards)


def test_cards_shared_by_number(daemon: Daemon, code: Path, journal: Journal, cards: list[Json]) -> None:
    most = {"trialGpuNumber": 1, "maxTrialNumberPerGpu": 3}
    trials = 9 * len(cards)
    id_ = _create(daemon, code, journal, cards, trials=trials, at_once=trials, seconds=3, **most)
    _assert_all_succeeded(daemon, id_, 1)
    assert set(journal.most_on_a_card().values()) == {3}


def test_cards_shared_by_memory(daemon: Daemon, code: Path, journal: Journal, cards: list[Json]) -> None:
    """Each trial needs 30 % of the smallest card: three fit on an idle card."""
    needs = int(min(card["memory_bytes"] for card in cards) * 0.3) // _MIB
    trials = 6 * len(cards)
    id_ = _create(
        daemon,
        code,
        journal,
        cards,
        trials=trials,
        at_once=trials,
        seconds=4,
        mib=needs,
        trialGpuNumber=1,
        trialGpuMemory=f"{needs}MB",
    )
    _assert_all_succeeded(daemon, id_, 1)
    assert max(journal.most_on_a_card().values()) >= 3
    total = {card["uuid"].removeprefix("GPU-"): card["memory_bytes"] for card in cards}
    for card, most in journal.most_on_a_card().items():
        assert most * needs * _MIB <= total[card]


@pytest.mark.parametrize(("number", "sees"), [(0, 0), (None, "all")])
def test_no_number_and_zero_differ(
    daemon: Daemon, code: Path, journal: Journal, cards: list[Json], number: int | None, sees: int | str
) -> None:
    nothing = {"useActiveGpu": None, "gpuIndices": None}
    id_ = _create(daemon, code, journal, cards, trials=1, at_once=1, trialGpuNumber=number, **nothing)
    daemon.wait(id_, "DONE", timeout_s=60)
    [stay] = journal.stays()
    nvml = Nvml()
    count = len(nvml.cards())
    nvml.close()
    assert len(stay.cards) == (count if sees == "all" else sees)


def test_other_process_on_the_card(
    daemon: Daemon, code: Path, journal: Journal, cards: list[Json], tmp_path: Path
) -> None:
    """The trial waits, its reason names the process and its memory, and it runs when the cards are free."""
    with ExitStack() as others:
        pids = [others.enter_context(_other_process(card["index"], tmp_path / "others")) for card in cards]
        id_ = _create(daemon, code, journal, cards, trials=1, at_once=1, trialGpuNumber=1)
        until(lambda: all(f"busy: pid {pid}" in _why(daemon, id_) for pid in pids), 30)
        print(_why(daemon, id_))
        assert journal.stays() == []
    _assert_all_succeeded(daemon, id_, 1)


def test_trials_share_a_card_by_mps(
    daemon: Daemon, code: Path, journal: Journal, cards: list[Json], tmp_path: Path
) -> None:
    """The server of NVIDIA's multi-process service stays on a card when its first client has ended."""
    with _mps() as variables:
        for card in cards:
            with _other_process(card["index"], tmp_path / "others", variables):
                pass
        until(lambda: _server_is_alone(cards), 10)
        config = _experiment(f"{sys.executable} hold_card.py {journal.path} 2 256", trials=4 * len(cards), at_once=8)
        section = {"platform": "local", "useActiveGpu": False, "trialGpuNumber": 1, "maxTrialNumberPerGpu": 2}
        given = {**section, "gpuIndices": [card["index"] for card in cards]}
        id_ = daemon.create({**config, "trainingService": given}, code, {**ENVIRONMENT, **variables})
        _assert_all_succeeded(daemon, id_, 1)
    assert set(journal.most_on_a_card().values()) == {2}


def test_kills_never_overfill_a_card(daemon: Daemon, code: Path, journal: Journal, cards: list[Json]) -> None:
    """One experiment puts two trials on a card; daemon and keeper are killed in turn."""
    trials = 12 * len(cards)
    id_ = _create(
        daemon, code, journal, cards, trials=trials, at_once=trials, seconds=2, trialGpuNumber=1, maxTrialNumberPerGpu=2
    )
    for seen in (2, 4, 6, 8):
        until(lambda seen=seen: len(journal.stays()) >= seen, 60)  # type: ignore[misc]
        daemon.kill()
        daemon.start()
    until(lambda: len(journal.stays()) >= 9, 60)
    os.kill(daemon.keeper_pid(), signal.SIGKILL)
    daemon.wait(id_, "DONE", timeout_s=150)
    assert max(journal.most_on_a_card().values()) == 2
    assert {trial["status"] for trial in _trials(daemon, id_)} == {"SUCCEEDED"}


def test_machine_reached_in_two_ways_is_one(
    daemon: Daemon, code: Path, journal: Journal, cards: list[Json], tmp_path: Path
) -> None:
    """Two services, `local` and `remote`, share the same cards, which are identified by UUID."""
    with _ssh(tmp_path / "machine") as machine:
        indices = {"trialGpuNumber": 1, "gpuIndices": [card["index"] for card in cards]}
        remote = {"platform": "remote", "machineList": [machine.entry(gpuIndices=indices["gpuIndices"])]}
        services = [{"platform": "local", "useActiveGpu": False, **indices}, {**remote, "trialGpuNumber": 1}]
        command = f"{sys.executable} hold_card.py {journal.path} 1 256"
        config = _experiment(command, trials=4 * len(cards) + 2, at_once=4 * len(cards))
        id_ = daemon.create({**config, "trainingService": services}, code, ENVIRONMENT)
        _assert_all_succeeded(daemon, id_, 1)
        daemon.call("POST", f"/experiments/{id_}/stop")
    assert set(journal.most_on_a_card().values()) == {1}
    print({attempt["place"] for attempt in daemon.attempts(id_)})


def test_mig_instances(daemon: Daemon, code: Path, journal: Journal, cards: list[Json]) -> None:
    """A divided card is assigned as a whole: a trial sees one instance, never one of another trial."""
    if not _is_divided():
        pytest.skip("no card of this machine is divided by MIG")
    id_ = _create(daemon, code, journal, cards, trials=2 * len(cards), at_once=4 * len(cards), trialGpuNumber=1)
    _assert_all_succeeded(daemon, id_, 1)
    assert set(journal.most_on_a_card().values()) == {1}


def _is_divided() -> bool:
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True)
    return "MIG " in listed.stdout


@contextmanager
def _mps() -> Iterator[dict[str, str]]:
    """A private MPS server; returns the variables with which our processes find it."""
    program = shutil.which("nvidia-cuda-mps-control")
    if program is None:
        pytest.skip("NVIDIA's multi-process service is not installed")
    with tempfile.TemporaryDirectory(prefix="mps-") as folder:  # paths of sockets are short
        variables = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        environment = {**os.environ, **variables}
        subprocess.run([program, "-d"], env=environment, check=True)
        try:
            yield variables
        finally:
            subprocess.run([program], input="quit -t 10\n", text=True, env=environment, timeout=30)


def _server_is_alone(cards: Sequence[Json]) -> bool:
    """Whether the driver reports only this process on each of the cards."""
    nvml = Nvml()
    found = {card["index"]: [process["pid"] for process in card["processes"]] for card in nvml.cards()}
    nvml.close()
    names = [[Path(f"/proc/{pid}/comm").read_text().strip() for pid in found[card["index"]]] for card in cards]
    return names == [["nvidia-cuda-mps"]] * len(cards)


@contextmanager
def _other_process(index: int, journal: Path, variables: Mapping[str, str] = _NONE) -> Iterator[int]:
    """A foreign process that computes on the card; waits until the driver reports it."""
    environment = {"CUDA_VISIBLE_DEVICES": str(index), "CUDA_DEVICE_ORDER": "PCI_BUS_ID", **variables}
    environment["PATH"] = ENVIRONMENT["PATH"]
    environment.update({name: os.environ[name] for name in _OF_DRIVER if name in os.environ})
    with subprocess.Popen([sys.executable, str(TRIAL), str(journal), "600", "1024"], env=environment) as process:
        try:
            until(lambda: any(stay.pid == process.pid for stay in Journal(journal).stays()), 30)
            yield process.pid
        finally:
            process.terminate()


@contextmanager
def _ssh(directory: Path) -> Iterator[SshMachine]:
    """This machine as a second one, by an SSH server in a thread; its sessions use the same driver."""
    machine = InProcessMachine(directory)
    machine.environment.update({name: os.environ[name] for name in _OF_DRIVER if name in os.environ})
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(machine.start(), loop).result(20)
        yield machine
        asyncio.run_coroutine_threadsafe(machine.stop(), loop).result(20)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
        end_all(str(machine.home))


def _why(daemon: Daemon, id: str) -> str:
    [trial] = _trials(daemon, id) or [{}]
    return str((trial.get("wait") or {}).get("sentence", ""))
