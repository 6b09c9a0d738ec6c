"""The Python that trials would find on machines, asked for before anything starts."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from nni_manager.machines.ledger import Demand
from nni_manager.machines.ssh.address import Entry
from nni_manager.platform_kit.connections import Connections
from nni_manager.platform_kit.contract import PreflightFinding, Severity
from nni_manager.platforms.remote.preflight import look
from tests import bare_python, other_python
from tests.platforms.remote.ssh_machines import InProcessMachine, RealMachine

pytestmark = pytest.mark.contract

_ABOUT = "127.0.0.1: python3 of trials"


@pytest.fixture(autouse=True)
def own_python_is_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """On machines that have the PATH of these tests."""
    monkeypatch.setenv("PATH", f"{Path(bare_python.own()).parent}:{os.environ['PATH']}")


@pytest_asyncio.fixture
async def other(tmp_path: Path) -> AsyncIterator[RealMachine]:
    """A real sshd, one session a login, where trials would find another Python."""
    machine = RealMachine(tmp_path / "other")
    machine.environment["PATH"] = other_python.put(tmp_path / "other-bin")
    await machine.start()
    yield machine
    await machine.stop()


async def found(*entries: dict[str, Any], needed: str = other_python.OWN) -> list[PreflightFinding]:
    demands = {Entry.of(entry): Demand(count=0) for entry in entries}
    return await look(demands, Connections("daemon"), python_version=needed)


async def of_python(*entries: dict[str, Any]) -> PreflightFinding:
    (finding,) = [one for one in await found(*entries) if one.subject == _ABOUT]
    return finding


async def test_the_same_version_passes_and_leaves_nothing(machine: InProcessMachine) -> None:
    finding = await of_python(machine.entry())
    assert finding.severity is Severity.FINE and f"Python {other_python.OWN}." in finding.sentence
    assert list(machine.home.iterdir()) == []


async def test_no_query_without_required_version(machine: InProcessMachine) -> None:
    [login] = await found(machine.entry(), needed="")
    assert login.subject == "127.0.0.1: login" and machine.logins == 1


async def test_other_version_is_wrong_despite_matching_machine(machine: InProcessMachine, other: RealMachine) -> None:
    fits, differs = [one for one in await found(machine.entry(), other.entry()) if one.subject == _ABOUT]
    assert (fits.severity, differs.severity) == (Severity.FINE, Severity.WRONG)
    assert differs.sentence == (
        f"trials would run in Python {other_python.VERSION}.1 ({other.directory.parent}/other-bin/python3), but need"
        f" Python {other_python.OWN} (trialPythonVersion)"
    )
    assert differs.fix == (
        f"set `pythonPath` of that machine to the folder of a Python {other_python.OWN}; a program that sends its"
        f" own function can run from Python {other_python.VERSION}, or with the function in a module, which"
        " every version reads"
    )


async def test_python_path_and_pre_command_apply_as_for_trials(other: RealMachine) -> None:
    own = str(Path(sys.executable).parent)
    assert (await of_python(other.entry(pythonPath=own))).severity is Severity.FINE
    assert (await of_python(other.entry(pythonPath=sys.executable))).severity is Severity.FINE
    shown = await of_python(other.entry(preCommand=f"echo noise; export PATH={own}:$PATH"))
    assert shown.severity is Severity.FINE, shown


async def test_a_folder_below_the_home_folder(machine: InProcessMachine) -> None:
    other_python.put(machine.home / "bin")
    assert (await of_python(machine.entry(pythonPath="~/bin"))).severity is Severity.WRONG


async def test_no_python3_is_wrong(machine: InProcessMachine, tmp_path: Path) -> None:
    """The machine has a Python of another name, which runs our own program."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "sh").symlink_to(shutil.which("sh") or "")
    (folder / "python").symlink_to(sys.executable)
    machine.environment["PATH"] = str(folder)
    finding = await of_python(machine.entry())
    assert (finding.severity, finding.sentence.split(",")[0]) == (
        Severity.WRONG,
        "trials find no python3 on their PATH",
    )


@pytest.mark.parametrize(("before", "words"), [("false", "exit code 1"), ("sleep 1000", "no answer within 1 s")])
async def test_unknown_version_is_left_to_trial(
    machine: InProcessMachine, before: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nni_manager.platform_kit.trial_python.ANSWER_S", 1.0)
    finding = await of_python(machine.entry(preCommand=before))
    assert finding.severity is Severity.WARNING and words in finding.sentence
    assert finding.fix.endswith("if another version has sent its function")


async def test_machines_that_are_away_or_drained_are_not_asked(machine: InProcessMachine, other: RealMachine) -> None:
    drained = await found(machine.entry(), other.entry(drain=True))
    assert [one.subject for one in drained] == ["127.0.0.1: login", _ABOUT, "127.0.0.1: login"]
    await other.stop()
    away = await found(other.entry())
    assert [(one.subject, one.severity) for one in away] == [("127.0.0.1: port", Severity.AWAY)]


async def test_variables_of_the_login_do_not_count(machine: InProcessMachine) -> None:
    """Trials do not get them, and neither does what is asked."""
    finding = await of_python(machine.entry(preCommand='test -z "$SSH_CLIENT" || exit 9'))
    assert finding.severity is Severity.FINE
