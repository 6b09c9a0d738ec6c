"""The kernel of a machine: one without descriptors of processes is refused in a sentence."""

from __future__ import annotations

import errno
import os

import pytest

from nni_manager.machines.ssh import bootstrap
from nni_manager.machines.ssh.faults import MachineFault
from trial_runner.keeper import arrival as there

pytestmark = pytest.mark.unit


def test_old_kernel_is_refused() -> None:
    with pytest.raises(MachineFault) as caught:
        bootstrap._greeting({"system": "Linux", "kernel": "4.18.0-553.el8", "has_pidfds": False})
    fault = caught.value.fault
    assert fault.is_wrong and fault.sentence == "its kernel is 4.18.0-553.el8; trials need Linux 5.3"


@pytest.mark.parametrize("has_name", [True, False])
def test_kernel_of_this_machine(monkeypatch: pytest.MonkeyPatch, has_name: bool) -> None:
    """Also by a Python that has no name for the call."""
    if not has_name:
        monkeypatch.delattr(os, "pidfd_open")
    assert there.has_pidfds()


@pytest.mark.parametrize(("number", "has"), [(errno.ENOSYS, False), (errno.EMFILE, True)])
def test_kernel_without_the_call(monkeypatch: pytest.MonkeyPatch, number: int, has: bool) -> None:
    def refused(pid: int) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "pidfd_open", refused)
    assert there.has_pidfds() == has
