"""Experiments from Python programs, on a real daemon."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import nbclient
import nbformat
import numpy as np
import psutil
import pytest

import nni_manager
from nni_manager import AsyncExperiment, Experiment, ExperimentFailed
from nni_manager.client.connection import Unreachable
from nni_manager.client.daemon import find
from nni_manager.client.manager_client import ManagerClient
from nni_manager.domain.errors import ConfigInvalid, Conflict, InvalidInput, NniManagerError, NotFound
from nni_manager.programs import following
from tests.acceptance.command_line import REPORT, RUN_ON, CommandLine, command_line
from tests.fork_server.popen import Popen

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(90)]

SPACE = {"x": {"_type": "uniform", "_value": [-9, 9]}}


@pytest.fixture
def line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CommandLine]:
    """Give this process the environment of a command line."""
    before = psutil.Process().children()
    with command_line(tmp_path) as line:
        for name, value in line.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(subprocess, "Popen", Popen)  # daemons that this process starts are forked
        yield line
        line.end()
    psutil.wait_procs(set(psutil.Process().children()) - set(before), timeout=10)  # daemons that this process started


def settings(**fields: object) -> dict[str, object]:
    return {
        "search_space": SPACE,
        "trial_command": REPORT,
        "trial_concurrency": 2,
        "max_trial_number": 4,
        "tuner": {"name": "Random", "classArgs": {"optimize_mode": "maximize"}},
        "training_service": {"platform": "local"},
        **fields,
    }


def test_experiment_runs_to_its_end_and_leaves_nothing(line: CommandLine) -> None:
    experiment = Experiment(settings(), experiment_name="from Python").run(progress=False)
    assert line.traces() == [], "the daemon ends with its last experiment"
    assert experiment.best is not None and experiment.best.value == 7
    assert [one.status for one in experiment.trials()] == ["SUCCEEDED"] * 4
    assert "from Python" in experiment._repr_html_() and "<svg" in experiment._repr_html_()
    assert Experiment.connect(experiment.id).status == "STOPPED"


def test_nni_file_runs_with_a_changed_field(line: CommandLine) -> None:
    experiment = Experiment(line.config(), max_trial_number=1).run(progress=False)
    assert len(experiment.trials()) == 1


def test_mistakes_name_their_field_and_create_nothing(line: CommandLine) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        Experiment(settings(trial_concurrency=0, trail_gpu_number=1)).start()
    assert {problem.field for problem in caught.value.problems} == {"trial_concurrency", "trail_gpu_number"}
    assert "config:" not in str(caught.value)
    with pytest.raises(NotFound):
        Experiment.connect("nothere1")


def test_start_prints_the_page_that_the_card_links(line: CommandLine, capfd: pytest.CaptureFixture[str]) -> None:
    with Experiment(settings(trial_command=RUN_ON)) as experiment:
        (page,) = re.findall(rf"^Experiment {experiment.id}: (http://\S+/)$", capfd.readouterr().err, re.M)
        assert httpx.get(page, trust_env=False).status_code == 200
        assert f'<a href="{page}"' in experiment._repr_html_()
    quiet = Experiment(settings(max_trial_number=1)).start(port=np.int64(0), progress=False)
    quiet.wait(progress=False)
    quiet.stop()
    assert capfd.readouterr() == ("", "")


def test_custom_parameters_are_checked(line: CommandLine) -> None:
    with Experiment(settings(trial_command=RUN_ON)) as experiment:
        added = experiment.trial(experiment.add_trial({"x": np.int64(1)}))
        assert repr(added.parameters) == "{'x': 1.0}"
        for wrong in ({"y": 1}, {}, {"x": "1"}, [1]):
            with pytest.raises(InvalidInput, match=r"^parameters"):
                experiment.add_trial(wrong)  # type: ignore[arg-type]
        with pytest.warns(UserWarning, match=r"^parameters\.x: 10\.0 is outside the search space") as warned:
            experiment.add_trial({"x": 10})
        assert warned[0].filename == __file__
        with pytest.raises(InvalidInput, match=r"^search_space\.x: low 1 is greater than high 0"):
            experiment.change(search_space={"x": {"_type": "uniform", "_value": (1, 0)}})


def test_stop_change_resume_view_delete(line: CommandLine) -> None:
    with Experiment(settings(trial_command=RUN_ON, trial_concurrency=1)) as experiment:
        assert experiment.wait(0.1, progress=False) is False
        experiment.change(max_trial_number=1)
        assert experiment.state["maxTrialNumber"] == 1
        with pytest.raises(Conflict, match="was already started"):
            experiment.start()
    assert experiment.status == "STOPPED"
    assert Experiment.view(experiment.id).status == "VIEWED"
    experiment.stop()
    assert experiment.resume().status != "STOPPED"
    experiment.stop()
    experiment.delete()
    with pytest.raises(NotFound):
        Experiment.connect(experiment.id)


def test_failures_are_raised_with_their_reason(line: CommandLine) -> None:
    with pytest.raises(ExperimentFailed, match="exit code 3"):
        Experiment(settings(trial_command="echo no data >&2; exit 3")).run(progress=False)


def test_methods_can_be_awaited(line: CommandLine) -> None:
    async def run() -> tuple[float, int]:
        experiment = AsyncExperiment(settings())
        await experiment.run()
        best = await experiment.best()
        assert best is not None
        return best.value, len(await experiment.trials("SUCCEEDED"))

    assert asyncio.run(run()) == (7, 4)


def test_cancelled_wait_leaves_the_experiment_running(line: CommandLine) -> None:
    async def run() -> str:
        experiment = await AsyncExperiment(settings(trial_command=RUN_ON)).start()
        assert await experiment.wait(0.1) is False
        found = await experiment.status()
        await experiment.stop()
        return found

    assert asyncio.run(run()) == "RUNNING"


def test_function_runs_as_a_trial(line: CommandLine) -> None:
    target = 2.0
    found = nni_manager.optimize(
        lambda parameters: (parameters["x"] - target) ** 2, SPACE, trials=6, concurrency=3, progress=False
    )
    assert {one.value == (one.parameters["x"] - target) ** 2 for one in found.trials()} == {True}
    assert found.best is not None and found.best.value == min(one.value or 0 for one in found.trials())


def test_generator_function_reports_intermediate_results(line: CommandLine) -> None:
    def steps(parameters: dict[str, float]) -> object:
        yield 1
        yield 2
        return {"default": 3, "x": parameters["x"]}

    found = nni_manager.optimize(steps, SPACE, trials=1, direction="maximize", progress=False)
    (one,) = found.trials()
    assert found.intermediate_results(one.id) == [1, 2] and one.value == 3


def test_unsendable_function_starts_nothing(line: CommandLine) -> None:
    lock = threading.Lock()
    with pytest.raises(InvalidInput, match="function: cannot be sent"):
        nni_manager.optimize(lambda parameters: lock.locked(), SPACE, trials=1)
    assert line.traces() == [] and not line.data.exists()


def test_daemon_killed_during_a_search_changes_nothing(line: CommandLine) -> None:
    """The program starts the next daemon, which continues the trials."""
    program = f"""
    import asyncio, time, nni_manager
    def slow(parameters):
        time.sleep(1)
        return parameters["x"]
    found = nni_manager.optimize(slow, {SPACE!r}, trials=6, concurrency=2, progress=False)
    print([trial.status for trial in found.trials()], [trial.attempt for trial in found.trials()])
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    running = subprocess.Popen(command, env=line.environment, cwd=line.folder, stdout=subprocess.PIPE, text=True)
    while (address := find(line.data)) is None or not _succeeded(ManagerClient(address)):
        assert running.poll() is None
    os.kill(ManagerClient(address).daemon()["pid"], signal.SIGKILL)
    out, _ = running.communicate(timeout=60)
    assert out == f"{['SUCCEEDED'] * 6} {[1] * 6}\n"


@pytest.mark.parametrize("moment", ["before the stop", "in the stop"])
@pytest.mark.parametrize("kind", ["awaited", "run"])
def test_finished_search_is_returned_after_a_daemon_death(
    line: CommandLine, monkeypatch: pytest.MonkeyPatch, moment: str, kind: str
) -> None:
    def kill() -> None:
        address = find(line.data)
        assert address is not None
        os.kill(ManagerClient(address).daemon()["pid"], signal.SIGKILL)

    stop, killed = ManagerClient.stop, []

    def dying(client: ManagerClient, id: str) -> Any:
        if not killed:
            killed.append(id)
            kill()
            if moment == "in the stop":
                raise Unreachable("the connection broke")
        return stop(client, id)

    monkeypatch.setattr(ManagerClient, "stop", dying)
    experiment = Experiment(settings())
    if kind == "run":
        experiment.run(progress=False)
    else:
        asyncio.run(AsyncExperiment._of(experiment).run())
    assert killed and experiment.best is not None and experiment.best.value == 7
    assert [one.status for one in experiment.trials()] == ["SUCCEEDED"] * 4


PROGRAM = """
import concurrent.futures, multiprocessing, os, sys
import nni_manager
{imports}

def fold(number):
    return number * 10.0

def objective(parameters):
{body}

if __name__ == "__main__":
    print("BEST", nni_manager.optimize(objective, {{"x": {{"_type": "choice", "_value": [1]}}}}, trials=1).best.value)
"""
_SPAWN = """    with multiprocessing.get_context("spawn").Pool(2) as pool:
        return sum(pool.map(fold, [1, 2, 3]))"""
_POOL = """    with concurrent.futures.ProcessPoolExecutor(2) as pool:
        return sum(pool.map(fold, [1, 2, 3]))"""


@pytest.mark.parametrize(
    ("imports", "body"),
    [
        ("", "    return sum(map(float, open('datasets/a.csv')))"),
        ("from helper import scale", "    return scale(6)"),
        ("", "    import helper\n    return helper.scale(6)"),
        ("", _POOL),
        ("", _SPAWN),
    ],
    ids=["file", "imported", "imported inside", "pool", "spawned pool"],
)
@pytest.mark.parametrize("start", [["src/program.py"], ["-m", "src.program"]], ids=["file", "module"])
def test_function_of_a_script_runs_as_in_the_script(
    line: CommandLine, imports: str, body: str, start: list[str]
) -> None:
    (line.folder / "src").mkdir()
    (line.folder / "src" / "program.py").write_text(PROGRAM.format(imports=imports, body=body))
    helper = line.folder / ("helper.py" if start[0] == "-m" else "src/helper.py")
    helper.write_text("def scale(value):\n    return value * 10.0\n")
    (line.folder / "datasets").mkdir()
    (line.folder / "datasets" / "a.csv").write_text("10\n20\n30\n")
    done = subprocess.run([sys.executable, *start], cwd=line.folder, capture_output=True, text=True, timeout=60)
    assert "BEST 60.0" in done.stdout, done.stdout + done.stderr


def test_program_without_a_guard_searches_once(line: CommandLine) -> None:
    program = PROGRAM.format(imports="", body="    return 60.0").replace('if __name__ == "__main__":', "if True:")
    (line.folder / "program.py").write_text(program)
    done = subprocess.run([sys.executable, "program.py"], cwd=line.folder, capture_output=True, text=True, timeout=60)
    assert "BEST 60.0" in done.stdout, done.stdout + done.stderr
    assert len(json.loads(line.good("experiment", "list", "--all", "--json"))) == 1


def test_daemon_stopped_during_a_search_is_not_restarted(line: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "RETURN_S", 1.0)
    heard = threading.Event()

    class Heard(Experiment):
        def events(self, *, may_start: bool = True) -> Iterator[dict[str, Any]]:
            for state in super().events(may_start=may_start):
                heard.set()
                yield state

    experiment = Heard(settings(trial_command=RUN_ON)).start()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(experiment.wait, progress=False)
        assert heard.wait(20) and line.run("stop", program="nni-manager").returncode == 0
        with pytest.raises(NniManagerError, match="the daemon ended; its trials keep running"):
            waiting.result(timeout=30)
    assert find(line.data) is None, "it was ended on purpose"
    experiment.stop()


def _succeeded(client: ManagerClient) -> int:
    return sum((one["counts"] or {}).get("SUCCEEDED", 0) for one in client.experiments())


def test_noninteractive_ctrl_c_stops_the_experiment(line: CommandLine) -> None:
    program = f"""
    import os, signal, threading
    from nni_manager import Experiment
    signal.signal(signal.SIGINT, signal.default_int_handler)  # background processes of a shell ignore it
    experiment = Experiment({settings(trial_command=RUN_ON)!r}).start()
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        experiment.wait(progress=False)
    except KeyboardInterrupt:
        print(experiment.status)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env=line.environment,
        cwd=line.folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "STOPPED\n", done.stderr


def test_package_import_skips_program_dependencies() -> None:
    check = "import sys, nni_manager; sys.exit(any(name.startswith('nni_manager.') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", check], timeout=20).returncode == 0


def test_notebook_runs_from_first_cell_to_chart(line: CommandLine) -> None:
    (line.folder / "home").mkdir()
    cells = [
        "import nni_manager",
        "def f(parameters):\n    return (parameters['x'] - 2) ** 2",
        f"found = nni_manager.optimize(f, {SPACE!r}, trials=4, concurrency=2)",
        "found.to_frame()[['number', 'value', 'parameters.x']]",
        "found",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in cells])
    nbclient.NotebookClient(notebook, timeout=60, kernel_name="python3").execute(env=line.environment)
    table, drawn = notebook.cells[3].outputs[0].data["text/html"], notebook.cells[4].outputs[0].data["text/html"]
    assert table.count("<tr") == 5 and drawn.count("<circle") == 4


@pytest.mark.parametrize("number", range(3))
def test_programs_of_the_documentation_run(line: CommandLine, number: int) -> None:
    page = (Path(__file__).parents[2] / "docs" / "python.md").read_text()
    text = re.findall(r"```python\n(.*?)```", page, re.S)[number]
    done = subprocess.run(
        [sys.executable, "-c", text], env=line.environment, cwd=line.folder, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0 and done.stdout.startswith("Best(value="), done.stderr
