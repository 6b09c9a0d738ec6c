"""Every command and every call of the Python client against a malicious manager.

It cannot read or write local files or control the terminal, and unusable answers cause a one-sentence error.
"""

from __future__ import annotations

import inspect
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
import pytest
from click.testing import CliRunner

from nni_manager import Experiment
from nni_manager.cli.main import nni_manager as group
from nni_manager.client import caller, connection
from nni_manager.client.manager_client import ManagerClient
from nni_manager.domain.errors import NniManagerError
from nni_manager.domain.text import UNPRINTABLE
from tests.acceptance.lying_manager import BODIES, LIES, LyingManager, lying_manager, references
from tests.live_daemon import LISTENING, Daemon, running_daemon

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(300)]

_CONFIG = {
    "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
    "trialCommand": "echo done; echo oh >&2; test $NNI_TRIAL_SEQ_ID != 1"
    ' && echo "{\\"type\\": \\"final\\", \\"value\\": 1}" >> "$NNI_OUTBOX"',
    "trialConcurrency": 1,
    "maxTrialNumber": 3,
    "tuner": {"name": "Random", "classArgs": {"optimize_mode": "maximize"}},
    "trainingService": {"platform": "local"},
}
_SECRET = "what-only-this-user-may-read"
#: Command → its arguments; ID and TRIAL are placeholders.
COMMANDS = {
    "config show": "ID",
    "create": "--config experiment.yml --foreground",
    "experiment delete": "ID --yes",
    "experiment export": "ID --filename out.csv --intermediate",
    "experiment import": "ID --filename data.json",
    "experiment list": "--all",
    "experiment prune": "--older-than 1d --yes",
    "experiment report": "ID",
    "experiment show": "ID",
    "experiment status": "ID",
    "log stderr": "ID",
    "log stdout": "ID --tail 3",
    "log trial": "ID --trial_id TRIAL",
    "plan": "--config experiment.yml",
    "platform clean": "--config experiment.yml --yes",
    "resume": "ID --foreground",
    "status": "",
    "stop": "ID",
    "tensorboard start": "ID --trial_id TRIAL",
    "tensorboard stop": "ID",
    "top": "",
    "trial download": "ID --trial_id TRIAL",
    "trial kill": "ID --trial_id TRIAL",
    "trial ls": "ID",
    "trial show": "ID --trial_id TRIAL",
    "update concurrency": "ID --value 2",
    "update credentials": "ID",
    "update duration": "ID --value 2h",
    "update labels": "ID --name new",
    "update platform": "ID --file experiment.yml",
    "update searchspace": "ID --filename space.json",
    "update trialnum": "ID --value 20",
    "view": "ID",
    "webui open": "ID",
    "webui url": "ID",
}
#: Public methods of the client → arguments; ID and TRIAL as above.
CALLS: dict[str, tuple[Any, ...]] = {
    "add_trial": ("ID", {"x": 1}),
    "all_trials": ("ID",),
    "change": ("ID", {"maxTrialNumber": 20}),
    "clean": (),
    "create": ("{}",),
    "daemon": (),
    "delete": ("ID",),
    "disk": (),
    "disk_use": ("ID",),
    "events": ("ID",),
    "experiment": ("ID",),
    "experiment_log": ("ID", "nnimanager.log"),
    "experiments": (),
    "export": ("ID",),
    "has_code": ("0" * 64,),
    "import_data": ("ID", []),
    "kill_trial": ("ID", "TRIAL"),
    "left": ("{}",),
    "metrics": ("ID",),
    "plan": ("{}",),
    "provenance": ("ID",),
    "renew_secrets": ("ID", {}),
    "report": ("ID",),
    "resume": ("ID",),
    "send_code": (Path("data.json"), "0" * 64),
    "start_tensorboard": ("ID", []),
    "stop": ("ID",),
    "stop_all": (),
    "stop_daemon": (),
    "stop_tensorboards": ("ID",),
    "tensorboards": ("ID",),
    "trial": ("ID", "TRIAL"),
    "trial_file": ("ID", "TRIAL", "parameter.cfg"),
    "trial_files": ("ID", "TRIAL"),
    "trial_log": ("ID", "TRIAL", "stdout"),
    "trials": ("ID",),
    "view": ("ID",),
}
_FILE_ARGUMENTS = {"attempt": 1, "offset": 0, "limit": 1000}


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Daemon, str, str]]:
    """(daemon, experiment, trial), which no test changes."""
    folder = tmp_path_factory.mktemp("honest")
    (folder / "code").mkdir()
    with running_daemon(folder, *LISTENING) as daemon:
        id_ = daemon.create({**_CONFIG, "trialCodeDirectory": "."}, folder / "code")
        daemon.wait(id_, "DONE")
        trials = daemon.call("GET", f"/experiments/{id_}/trials")["trials"]
        yield daemon, id_, trials[0]["id"]


@pytest.fixture
def liar(honest: tuple[Daemon, str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LyingManager]:
    """The manager for this process, which runs in an empty folder and has secrets."""
    daemon, id_, _ = honest
    (address,) = [one["address"] for one in daemon.call("GET", "/daemon")["listeners"] if one["kind"] == "service"]
    home = tmp_path / "a" / "b" / "home"
    work = home / "work"
    work.mkdir(parents=True)
    (home / "private").write_text(_SECRET)
    (home / "private").chmod(0o600)
    monkeypatch.chdir(work)
    monkeypatch.setattr(connection, "MOST_BYTES", 8_000_000)
    for name, value in {"HOME": home, "PRIVATE": _SECRET, "NNI_MANAGER_DATA": home / "data"}.items():
        monkeypatch.setenv(name, str(value))
    with lying_manager(address, id_) as manager:
        monkeypatch.setenv(caller.MANAGER_VARIABLE, manager.url)
        yield manager


def _leaves(command: click.Command, context: click.Context, words: tuple[str, ...] = ()) -> Iterator[str]:
    """The commands that accept a manager elsewhere."""
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from _leaves(found, click.Context(found, info_name=name, parent=context), (*words, name))
    elif any("--manager" in parameter.opts for parameter in command.params):
        yield " ".join(words)


def test_every_command_and_call_is_covered() -> None:
    assert set(_leaves(group, click.Context(group))) == set(COMMANDS)
    public = {name for name, _ in inspect.getmembers(ManagerClient, inspect.isfunction) if not name.startswith("_")}
    assert public == set(CALLS)


def _write_inputs() -> None:
    import json

    Path("experiment.yml").write_text(json.dumps({**_CONFIG, "trialCodeDirectory": "."}))
    Path("space.json").write_text(json.dumps(_CONFIG["searchSpace"]))
    Path("data.json").write_text("[]")


def _files(root: Path) -> dict[str, bytes]:
    """All files except those in the current folder."""
    work = Path.cwd()
    found = [path for path in root.rglob("*") if path.is_file() and work not in path.parents]
    return {str(path): path.read_bytes() for path in found}


@pytest.mark.parametrize("lie", ["", *LIES, *BODIES])
def test_commands_survive_a_lying_manager(
    liar: LyingManager, honest: tuple[Daemon, str, str], tmp_path: Path, lie: str
) -> None:
    _write_inputs()
    before = _files(tmp_path)
    for command, line in COMMANDS.items():
        liar.lie, liar.told = lie, []
        words = [honest[1] if word == "ID" else honest[2] if word == "TRIAL" else word for word in line.split()]
        begun_s = time.monotonic()
        done = CliRunner().invoke(group, [*command.split(), *words], prog_name="nni-manager")
        place = f"{command} ({lie}): {done.output!r}"
        assert done.exit_code in (0, 1, 2), f"{place} {done.exception!r}"
        assert "please report it" not in done.output and "Traceback" not in done.output, place
        assert not UNPRINTABLE.search(done.output), place
        assert _SECRET.encode() not in b"".join(liar.told), place
        assert time.monotonic() - begun_s < 30, place
        if not lie:
            assert done.exit_code == 0 or command in ("log stdout", "experiment import", "update credentials"), place
        if lie == "secrets" and command in ("resume", "update credentials"):
            assert (
                done.exit_code == 2
                and all(one in done.output for one in references())
                and "--secret REF" in done.output
            ), place
    assert _files(tmp_path) == before
    assert not [path for path in Path.cwd().rglob("*") if path.is_symlink()]


@pytest.mark.parametrize("lie", ["", *LIES, *BODIES])
def test_client_calls_survive_a_lying_manager(
    liar: LyingManager, honest: tuple[Daemon, str, str], tmp_path: Path, lie: str
) -> None:
    _write_inputs()
    before = _files(tmp_path)
    client = ManagerClient(caller.choose(None, liar.url) and _address(liar.url))
    for name, given in CALLS.items():
        liar.lie = lie
        arguments = [honest[1] if one == "ID" else honest[2] if one == "TRIAL" else one for one in given]
        try:
            answer = getattr(client, name)(*arguments, **(_FILE_ARGUMENTS if name == "trial_file" else {}))
            if name in ("all_trials", "events"):
                next(iter(answer), None)
        except NniManagerError as error:
            assert lie, f"{name}: {error}"
            assert not UNPRINTABLE.search(str(error)), name
    assert _files(tmp_path) == before


def _address(url: str) -> Any:
    from nni_manager.client.address import Address

    parts = urlsplit(url)
    return Address(host=str(parts.hostname), port=int(parts.port or 0))


@pytest.mark.parametrize("lie", ["", *LIES, *BODIES])
def test_experiments_of_programs_survive_a_lying_manager(
    liar: LyingManager, honest: tuple[Daemon, str, str], lie: str
) -> None:
    """All properties and methods that only read."""
    experiment = Experiment.connect(honest[1], manager=liar.url)
    for name in ("state", "status", "best", "trials", "pareto_set", "is_done", "_repr_html_", "resume", "stop", "wait"):
        liar.lie, liar.told = lie, []
        try:
            found = getattr(experiment, name)
            found = found() if callable(found) else found
            if name == "trials":
                found = [(one.number, one.value, one.parameters, one.status) for one in found]
            if name == "_repr_html_":
                assert "<script" not in str(found)
        except (NniManagerError, AttributeError) as error:
            assert lie or isinstance(error, AttributeError), f"{name}: {error}"
        assert _SECRET.encode() not in b"".join(liar.told), name


def test_allowed_secret_is_sent(liar: LyingManager, honest: tuple[Daemon, str, str]) -> None:
    liar.lie = "secrets"
    words = ["resume", honest[1], *(word for one in references() for word in ("--secret", one))]
    assert CliRunner().invoke(group, words).exit_code == 0
    assert _SECRET.encode() in b"".join(liar.told)
    liar.told = []
    assert CliRunner().invoke(group, ["resume", honest[1], "--no-secrets"]).exit_code == 0
    with pytest.raises(NniManagerError, match="home/private"):
        Experiment.connect(honest[1], manager=liar.url).resume()
    assert _SECRET.encode() not in b"".join(liar.told)
    Experiment.connect(honest[1], manager=liar.url).resume(secrets=references())
    assert _SECRET.encode() in b"".join(liar.told) and os.environ["PRIVATE"] == _SECRET
