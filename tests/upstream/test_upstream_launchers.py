"""NNI 3.0's own launchers, unmodified, start experiments on our daemon through `nni-manager nni-hook`."""

from __future__ import annotations

import contextlib
import json
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from nni_manager.client.daemon import find_running
from nni_manager.client.manager_client import ManagerClient
from nni_manager.platform_kit.payload import STAND_IN
from tests.live_daemon import end_all, processes_of
from tests.programs import launching
from tests.upstream.warm_python import WarmPython

pytestmark = [
    pytest.mark.upstream,
    pytest.mark.timeout(1200),  # the first test of a session may install nni
    pytest.mark.group("warm_nni3_launchers"),  # one is enough
]

#: Both formats; the trial's results repeat its parameters.
V2 = """
searchSpace: {C: {_type: loguniform, _value: [0.01, 100]}, kernel: {_type: choice, _value: [linear, rbf]}}
trialCommand: python3 trial.py
trialCodeDirectory: .
trialConcurrency: 2
maxTrialNumber: 3
tuner: {name: TPE, classArgs: {optimize_mode: maximize}}
trainingService: {platform: local}
"""
V1 = """
authorName: me
experimentName: first format
trialConcurrency: 2
maxTrialNum: 3
trainingServicePlatform: local
searchSpacePath: space.json
useAnnotation: false
tuner: {builtinTunerName: TPE, classArgs: {optimize_mode: maximize}}
trial: {command: python3 trial.py, codeDir: ., gpuNum: 0}
"""
SPACE = {
    "C": {"_type": "loguniform", "_value": [0.01, 100]},
    "kernel": {"_type": "choice", "_value": ["linear", "rbf"]},
}


class Hooked:
    """A shell of an NNI user, with the hook installed.

    `folder`: the user's home; the daemon uses the default data directory. `programs`: NNI's folder, first on PATH.
    """

    def __init__(self, folder: Path, programs: Path) -> None:
        self.folder = folder
        self.data = folder / "home" / "nni-experiments"
        self.port = launching.free_port()
        self._bin = programs
        (folder / "home").mkdir()
        (folder / "trial.py").write_text(launching.TRIAL)
        (folder / "space.json").write_text(json.dumps(SPACE))

    def shell(self, command: str, *, fails: bool = False) -> str:
        environment = launching.environment(self.folder / "home")
        environment["PATH"] = f"{self._bin}:{environment['PATH']}"
        hook = f'eval "$({shlex.quote(sys.executable)} -m nni_manager nni-hook)"'
        # exclude this environment's packages
        done = subprocess.run(
            ["sh", "-c", f"cd {launching.ROOT}; {hook}; cd {self.folder}; {command}"],
            env=environment,
            capture_output=True,
            text=True,
        )
        assert (done.returncode != 0) == fails, done.stdout + done.stderr
        return done.stdout + done.stderr

    def client(self) -> ManagerClient:
        address = find_running(self.data)
        assert address is not None
        return ManagerClient(address)

    def listed(self) -> dict[str, Any]:
        return json.loads((self.data / ".experiment").read_text())  # type: ignore[no-any-return]

    def wait_until_done(self, id_: str) -> list[dict[str, Any]]:
        next(state for state in self.client().events(id_) if state["status"] == "DONE")
        return list(self.client().all_trials(id_))

    def nodes(self) -> list[psutil.Process]:
        found = []
        for process in processes_of(str(self.data)):
            with contextlib.suppress(psutil.Error):  # it ends meanwhile
                if "nni_manager.programs.hook.node" in process.cmdline():
                    found.append(process)
        return sorted(found, key=lambda process: process.create_time())


@pytest.fixture
def hooked(tmp_path: Path, warm_nni3: WarmPython) -> Iterator[Hooked]:
    hooked = Hooked(tmp_path, warm_nni3.bin)
    try:
        yield hooked
    finally:
        end_all(str(tmp_path))


@pytest.mark.parametrize("config", [V1, V2], ids=["v1", "v2"])
def test_command_line_runs_resumes_views_and_stops(hooked: Hooked, config: str) -> None:
    (hooked.folder / "experiment.yml").write_text(config)
    hooked.shell(f"nnictl create -c experiment.yml --port {hooked.port} --url_prefix my/pre")
    (id_,) = hooked.listed()
    trials = hooked.wait_until_done(id_)
    assert [trial["status"] for trial in trials] == ["SUCCEEDED"] * launching.TRIALS
    for trial in trials:
        result = trial["finalResult"] if isinstance(trial["finalResult"], dict) else json.loads(trial["finalResult"])
        assert {**result, **trial["parameters"]} == result
    assert hooked.client().experiment(id_)["endpoint"] == {
        **hooked.client().experiment(id_)["endpoint"],
        "port": hooked.port,
        "urlPrefix": "my/pre",
    }
    assert "success" in hooked.shell(f"nnictl stop {id_}")
    psutil.wait_procs(hooked.nodes(), timeout=30)
    for action in ("resume", "view"):
        hooked.shell(f"nnictl {action} {id_} --port {hooked.port}")
        assert list(hooked.listed()) == [id_] and len(hooked.nodes()) == 1
        (node,) = hooked.nodes()
        hooked.shell(f"nnictl stop {id_}")
        node.wait(30)
    assert find_running(hooked.data) is None and list(hooked.listed()) == [id_]


def test_signal_stops_only_one_experiment(hooked: Hooked) -> None:
    (hooked.folder / "experiment.yml").write_text(V2.replace("python3 trial.py", "sleep 1000"))
    other = launching.free_port()
    for port in (hooked.port, other):
        hooked.shell(f"nnictl create -c experiment.yml --port {port}")
    first, second = hooked.nodes()
    stopped = first.cmdline()[first.cmdline().index("--experiment-id") + 1]
    first.send_signal(signal.SIGTERM)
    first.wait(60)
    states = {one["id"]: one["status"] for one in hooked.client().experiments()}
    assert states.pop(stopped) == "STOPPED" and list(states.values()) == ["RUNNING"]
    assert second.is_running()
    second.send_signal(signal.SIGTERM)
    second.wait(60)


def test_python_program_runs_and_resumes_its_experiment(hooked: Hooked) -> None:
    (hooked.folder / "program.py").write_text(launching.PROGRAM)
    seen = launching.found(hooked.shell(f"python program.py {hooked.port}"))
    launching.judge(seen)
    assert list(hooked.listed()) == [seen["id"]] and hooked.nodes() == []


def _record_shape(record: dict[str, Any]) -> dict[str, str]:
    """The fields of a record with the types of their values."""
    return {name: type(value).__name__ for name, value in sorted(record.items())}


def test_every_launcher_creates_the_same_experiment(hooked: Hooked) -> None:
    """NNI's example with NNI's SDK: by our command line, by NNI's through the hook, in both formats, and by
    `Experiment.run()` through the hook and on the stand-in."""
    for name, config in (("v1", V1), ("v2", V2)):
        (hooked.folder / f"{name}.yml").write_text(config)
    (hooked.folder / "program.py").write_text(launching.PROGRAM)
    ours, theirs = Path(sys.executable).parent, hooked.shell
    stand_in = f"PYTHONPATH={STAND_IN} {sys.executable} program.py"
    ways: dict[str, Callable[[], object]] = {
        "our nnictl, v1": lambda: theirs(f"{ours}/nnictl create --config v1.yml --foreground"),
        "our nnictl, v2": lambda: theirs(f"{ours}/nnictl create --config v2.yml --foreground"),
        "NNI's nnictl, v1": lambda: theirs(f"nnictl create -c v1.yml --port {launching.free_port()}"),
        "NNI's nnictl, v2": lambda: theirs(f"nnictl create -c v2.yml --port {launching.free_port()}"),
        "NNI's Experiment": lambda: theirs(f"python program.py {launching.free_port()}"),
        "the stand-in's Experiment": lambda: theirs(f"{stand_in} {launching.free_port()}"),
    }
    hooked.shell(f"{ours}/nni-manager serve --port 0 > serve.log 2>&1 &")  # it outlives each of them
    hooked.shell(f"timeout 60 sh -c 'until {ours}/nni-manager status > status.log 2>&1; do sleep 0.1; done'")
    shapes = {}
    for way, launch in ways.items():
        before = {one["id"] for one in hooked.client().experiments()}
        launch()
        (id_,) = {one["id"] for one in hooked.client().experiments()} - before
        while hooked.client().experiment(id_)["status"] not in ("DONE", "STOPPED"):
            next(state for state in hooked.client().events(id_) if state["status"] == "DONE")
        trials = list(hooked.client().all_trials(id_))
        assert [trial["status"] for trial in trials] == ["SUCCEEDED"] * launching.TRIALS, way
        for trial in trials:
            result = json.loads(trial["finalResult"])
            assert {**result, **trial["parameters"]} == result and trial["finalValue"] == result["default"], way
            assert trial["intermediates"] == 1, way
        shapes[way] = [_record_shape(trial) for trial in trials]
    first = shapes["our nnictl, v1"]
    assert all(shape == first for shape in shapes.values()), shapes


def test_refused_config_states_the_reason(hooked: Hooked) -> None:
    (hooked.folder / "experiment.yml").write_text(V2.replace("name: TPE", "name: NoSuchTuner"))
    told = hooked.shell(f"nnictl create -c experiment.yml --port {hooked.port}", fails=True)
    assert "NoSuchTuner" in told and "400" in told
    assert hooked.nodes() == []
