"""The one file of the runner: this version of Python has its modules compiled already, any other runs it as well."""

import io
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from nni_manager.platform_kit.payload import machine_archive, runner_archive
from trial_runner.wire.runner_archive import MODULES_FILE, STAND_IN_FILE

pytestmark = pytest.mark.unit

#: As the archive begins; then what was compiled of it, and what a trace of an error shows of it.
_BEGIN = """
import json, sys, traceback

compiled = []
sys.addaudithook(lambda event, given: compiled.append(str(given[1])) if event == "compile" else None)
sys.path.insert(0, {archive!r})
from trial_runner.wire import runner_archive

runner_archive.use_modules()
from trial_runner import __main__ as program
from trial_runner import launch

try:
    launch.libc_call("no_such_call")
except Exception:
    trace = traceback.format_exc()
print(json.dumps({{"compiled": compiled, "trace": trace, "file": program.__file__, "program": launch.PROGRAM}}))
"""


def _begun(archive: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-I", "-c", _BEGIN.format(archive=str(archive))], stdout=subprocess.PIPE, check=True
    )
    told: dict[str, Any] = json.loads(done.stdout)
    told["compiled"] = [name for name in told["compiled"] if name.startswith(str(archive))]
    return told


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "runner.pyz"
    path.write_bytes(runner_archive())
    return path


def test_a_start_compiles_only_what_finds_the_compiled_modules(archive: Path) -> None:
    told = _begun(archive)
    first = ["trial_runner/__init__.py", "trial_runner/wire/__init__.py", "trial_runner/wire/runner_archive.py"]
    assert set(told["compiled"]) == {f"{archive}/{name}" for name in first}
    assert (told["file"], told["program"]) == (f"{archive}/trial_runner/__main__.py", str(archive))
    assert 'File "trial_runner/launch.py", line ' in told["trace"]
    assert "    answer = int(getattr(_libc, name)(*arguments))\n" in told["trace"], "the line is found in the archive"


def test_another_version_of_python_compiles_the_sources(archive: Path) -> None:
    whole = zipfile.ZipFile(io.BytesIO(runner_archive()))
    with zipfile.ZipFile(archive, "w") as other:
        for name in set(whole.namelist()) - {MODULES_FILE}:
            other.writestr(name, whole.read(name))
    told = _begun(archive)
    assert len(set(told["compiled"])) > 20 and f"{archive}/trial_runner/__main__.py" in told["compiled"]
    assert (told["file"], told["program"]) == (f"{archive}/trial_runner/__main__.py", str(archive))


def test_a_python_without_zlib_compiles_the_sources(archive: Path) -> None:
    program = f"import sys; sys.modules['zlib'] = None\n{_BEGIN.format(archive=str(archive))}"
    done = subprocess.run([sys.executable, "-I", "-c", program], stdout=subprocess.PIPE, check=True)
    assert len(set(json.loads(done.stdout)["compiled"])) > 20


def test_other_processes_make_the_same_bytes(archive: Path) -> None:
    program = (
        "import sys, email.mime.text, xml.dom\n"
        "from nni_manager.platform_kit.payload import runner_archive\n"
        "sys.stdout.buffer.write(runner_archive())"
    )
    made = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=True).stdout
    assert made == archive.read_bytes(), "a daemon that starts again replaces no file that runners are reading"


def test_containers_get_no_keeper_and_machines_get_all() -> None:
    container, machine = (
        zipfile.ZipFile(io.BytesIO(data)).namelist() for data in (runner_archive(), machine_archive())
    )
    assert not any(name.startswith("trial_runner/keeper/") for name in container)
    assert {"__main__.py", "trial_runner/keeper/__main__.py", "trial_runner/stand_in/nni/__init__.py"} < set(machine)
    assert {STAND_IN_FILE, MODULES_FILE} <= set(container) and not {STAND_IN_FILE, MODULES_FILE} & set(machine)
