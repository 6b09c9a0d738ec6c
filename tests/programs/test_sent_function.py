"""Functions that are sent: by reference, by cloudpickle, or not at all."""

from __future__ import annotations

import importlib
import json
import math
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType

import pytest

from nni_manager.domain.errors import InvalidInput
from nni_manager.programs import pickled_names, sent_function

pytestmark = [pytest.mark.unit, pytest.mark.timeout(30)]


@pytest.fixture
def helper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module in a folder of its own, importable."""
    folder = tmp_path / "theirs"
    (folder / "pack").mkdir(parents=True)
    (folder / "pack" / "__init__.py").write_text("")
    (folder / "pack" / "inner.py").write_text("def call(parameters):\n    return parameters['x'] * 2\n")
    monkeypatch.syspath_prepend(str(folder))
    importlib.invalidate_caches()
    module = importlib.import_module("pack.inner")
    yield module
    for name in ("pack.inner", "pack"):
        del sys.modules[name]


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    (folder := tmp_path / "empty").mkdir()
    return folder


def called(sent: sent_function.SentFunction, parameters: object, tmp_path: Path) -> list[dict[str, object]]:
    """What a trial's process reports that calls the function."""
    import trial_runner

    stand_in = Path(trial_runner.__file__).parent / "stand_in"
    (tmp_path / "run").mkdir(exist_ok=True)
    (tmp_path / "outbox").mkdir(exist_ok=True)
    environment = {
        **os.environ,
        "PYTHONPATH": str(stand_in),
        "NNI_PLATFORM": "local",
        "NNI_OUTBOX": str(tmp_path / "outbox" / "lines.jsonl"),
    }
    environment |= {"NNI_SYS_DIR": str(tmp_path / "run"), "NNI_TRIAL_JOB_ID": "abcde"}
    record = json.dumps({"parameter_id": 0, "parameter_source": "algorithm", "parameters": parameters})
    (tmp_path / "run" / "parameter.cfg").write_text(record)
    subprocess.run(
        [sys.executable, "-m", "nni_call", sent.what], env=environment, cwd=sent.folder, check=True, timeout=20
    )
    return [json.loads(line) for line in _only(tmp_path / "outbox").read_text().splitlines()]


def _only(folder: Path) -> Path:
    (file,) = folder.iterdir()
    return file


def test_a_modules_function_is_sent_by_reference_with_its_folder(
    helper: ModuleType, empty: Path, tmp_path: Path
) -> None:
    sent = sent_function.prepare(helper.call, empty, None)
    assert sent.what == "pack.inner:call" and sent.folder == tmp_path / "theirs"
    assert called(sent, {"x": 4}, tmp_path)[-1]["value"] == 8


def test_an_installed_function_needs_no_folder(empty: Path) -> None:
    assert sent_function.prepare(math.hypot, empty, None).what.startswith("function.pickle:")
    assert sent_function.prepare(json.dumps, empty, None) == sent_function.SentFunction(what="json:dumps", folder=empty)


def test_a_closure_is_sent_by_cloudpickle_which_travels_with_it(empty: Path, tmp_path: Path) -> None:
    factor = 3

    def steps(parameters: dict[str, float]) -> object:
        for step in range(2):
            yield {"default": parameters["x"] * factor * step}

    sent = sent_function.prepare(steps, empty, None)
    assert sent.what == f"function.pickle:{sys.version_info[0]}.{sys.version_info[1]}"
    assert (empty / "cloudpickle" / "__init__.py").exists()
    values = [one["value"] for one in called(sent, {"x": 2}, tmp_path)]
    assert values == [{"default": 0}, {"default": 6}, {"default": 6}]


def test_another_version_of_python_refuses_before_it_reads_the_function(empty: Path) -> None:
    sent = sent_function.prepare(lambda parameters: 1, empty, None)
    import trial_runner

    stand_in = Path(trial_runner.__file__).parent / "stand_in"
    (empty / "function.pickle").write_bytes(b"not a pickle")
    done = subprocess.run(
        [sys.executable, "-m", "nni_call", "function.pickle:3.1"],
        env={**os.environ, "PYTHONPATH": str(stand_in)},
        cwd=sent.folder,
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert done.returncode == 1 and "was sent by Python 3.1, and this is Python" in done.stderr
    assert "Traceback" not in done.stderr


def test_what_cannot_be_pickled_is_refused_with_its_reason(empty: Path) -> None:
    lock = threading.Lock()
    with pytest.raises(InvalidInput, match=r"function: cannot be sent .*lock"):
        sent_function.prepare(lambda parameters: lock.acquire(), empty, None)


def test_a_module_that_is_not_sent_is_named_with_the_folder_to_give(
    helper: ModuleType, empty: Path, tmp_path: Path
) -> None:
    def uses(parameters: object) -> object:
        return helper.call(parameters)

    with pytest.raises(InvalidInput, match=f"uses module pack, .*code_directory='{tmp_path / 'theirs'}'"):
        sent_function.prepare(uses, empty, None)
    sent = sent_function.prepare(uses, empty, tmp_path / "theirs")
    assert called(sent, {"x": 1}, tmp_path)[-1]["value"] == 2


def test_without_cloudpickle_the_sentence_says_what_to_install(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sent_function, "find_spec", lambda name: None)
    with pytest.raises(InvalidInput, match=r"pip install nni-manager\[programs\]"):
        sent_function.prepare(lambda parameters: 1, empty, None)


def test_a_text_that_looks_like_a_module_is_no_module() -> None:
    import cloudpickle

    content = cloudpickle.dumps(lambda parameters: ("numpy", json.dumps(parameters)))
    found = set(pickled_names.modules(content))
    assert "json" in {name.partition(".")[0] for name in found} and "numpy" not in found
