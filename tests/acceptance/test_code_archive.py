"""Code directories that are sent to trials elsewhere: received files, and refusals before creation."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.command_line import CommandLine, command_line, id_in
from tests.acceptance.numbered import ENVIRONMENT
from tests.live_daemon import Daemon

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(120)]

MIB = 1 << 20
LISTER = Path(__file__).with_name("trials") / "lister.py"
#: Files in the code directory: content, and whether they are sent.
TREE: dict[str, tuple[str, bool]] = {
    ".nniignore": ("*.log\n!keep.log\n/data/*\n!/data/small.csv\n.venv/\n", True),
    "train.log": ("x", False),
    "logs/deep/other.log": ("x", False),
    "logs/deep/keep.log": ("kept", True),
    "data/big.csv": ("x" * 999, False),
    "data/small.csv": ("1,2", True),
    ".venv/bin/python": ("x", False),
    ".hidden/.dotfile": ("dot", True),
    "größe/数据 1.txt": ("daten", True),
    "with space/and 'quote'.txt": ("q", True),
    "inner/.nniignore": ("*.tmp\n", True),
    "inner/a.tmp": ("x", False),
    "a.tmp": ("tmp", True),
}


def _config(code: Path, notes: Path, **platform: Any) -> dict[str, Any]:
    return {
        "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
        "trialCommand": f"python3 lister.py {notes}",
        "trialCodeDirectory": str(code),
        "trialConcurrency": 2,
        "maxTrialNumber": 2,
        "tuner": {"name": "Random", "classArgs": {"optimize_mode": "maximize"}},
        "trainingService": {"platform": "scripted", "launch": "process", "nniManagerIp": "127.0.0.1", **platform},
    }


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A code directory with the trial that lists it."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "lister.py").write_bytes(LISTER.read_bytes())
    return folder


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    return folder


# What arrives


@pytest.mark.parametrize("channel", ["push", "pull"])
def test_trial_runs_the_code_that_was_sent(shared: Daemon, tree: Path, notes: Path, channel: str) -> None:
    expected = {"lister.py": str(LISTER.stat().st_size), "logs/deep": "folder", "logs": "folder", "data": "folder"}
    for name, (text, travels) in TREE.items():
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        if travels:
            expected[name] = str(len(text.encode()))
            expected |= {str(folder): "folder" for folder in list(Path(name).parents)[:-1]}
    (tree / "empty" / "inside").mkdir(parents=True)
    (tree / "run.sh").write_text("#!/bin/sh\n")
    (tree / "run.sh").chmod(0o755)
    (tree / "link.csv").symlink_to("data/small.csv")
    (tree / "inner" / "up").symlink_to("../empty")
    (tree / os.fsdecode(b"caf\xe9")).write_text("latin")
    expected |= {
        "empty": "folder",
        "empty/inside": "folder",
        "run.sh": "x 10",
        "link.csv": "-> data/small.csv",
        "inner/up": "-> ../empty",
        os.fsdecode(b"caf\xe9"): "5",
    }
    id_ = shared.create(_config(tree, notes, channel=channel), tree, ENVIRONMENT)
    (tree / "later.py").write_text("what is written after the submission stays here")
    shared.wait(id_, "DONE")
    seen = [json.loads(path.read_text()) for path in notes.iterdir()]
    assert len(seen) == 2 and len({entry["folder"] for entry in seen}) == 2
    for entry in seen:
        assert {os.fsdecode(bytes.fromhex(name)): what for name, what in entry["found"].items()} == expected


def test_largest_allowed_number_of_files_is_sent(shared: Daemon, tree: Path, notes: Path) -> None:
    for number in range(1998):
        (tree / f"{number}.txt").touch()
    (tree / "big").write_bytes(os.urandom(32 * MIB))  # incompressible
    config = {**_config(tree, notes), "maxTrialNumber": 1}
    id_ = shared.create(config, tree, ENVIRONMENT)
    shared.wait(id_, "DONE", timeout_s=100)
    (found,) = (json.loads(path.read_text())["found"] for path in notes.iterdir())
    assert len(found) == 2000
    assert found[b"big".hex()] == str(32 * MIB)


# What is refused


def _too_many(tree: Path) -> str:
    for number in range(2000):
        (tree / f"{number}.txt").touch()
    return "has 2001 files, most of it not in any folder, but at most 2000 files can be sent to trials"


def _too_large(tree: Path) -> str:
    (tree / "data").mkdir()
    (tree / "data" / "big").touch()
    os.truncate(tree / "data" / "big", 301 * MIB)
    return "has 301.1 MB, most of it in 'data', but at most 300.0 MB can be sent to trials"


def _leads_out(tree: Path) -> str:
    (tree / "data").symlink_to("../notes")
    return "is a link that leads out of it, to '../notes'; copy its target into the directory"


def _leads_nowhere(tree: Path) -> str:
    (tree / "data").symlink_to("nowhere")
    return "is a link to 'nowhere', which cannot be followed (No such file or directory); correct the link"


def _is_no_file(tree: Path) -> str:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tree / "socket"))
    return "is a socket, which cannot be sent; remove it"


BAD = [_too_many, _too_large, _leads_out, _leads_nowhere, _is_no_file]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    with command_line(tmp_path_factory.mktemp("served")) as line:
        line.serve("--host", "127.0.0.1", "--port", "0", "--trial-host", "127.0.0.1")
        yield line


@pytest.mark.parametrize("spoil", BAD)
def test_unpackable_code_is_refused_and_nothing_is_created(
    served: CommandLine, tree: Path, notes: Path, spoil: Callable[[Path], str]
) -> None:
    words = spoil(tree)
    before = _traces(served)
    config = _config(tree, notes)
    with served.daemon.client() as client:
        answer = client.post("/api/v1/experiments", json=config)
    sentence = answer.json()["error"]
    assert answer.status_code == 400
    assert sentence.startswith("trialCodeDirectory: ") and "\n" not in sentence
    assert f"{str(tree)!r} {words}" in sentence and ".nniignore" in sentence
    exit_code, line = served.bad("create", "--config", served.config(**config))
    assert exit_code in (1, 2) and sentence in line
    assert _traces(served) == before
    assert list(notes.iterdir()) == []


def test_ignored_files_do_not_count(served: CommandLine, tree: Path, notes: Path) -> None:
    for spoil in BAD[:2]:
        spoil(tree)
    (tree / ".nniignore").write_text("/data\n*.txt\n")
    id_ = id_in(served.good("create", "--config", served.config(**_config(tree, notes))))
    served.daemon.wait(id_, "DONE")
    assert len(list(notes.iterdir())) == 2


def _traces(served: CommandLine) -> tuple[list[str], list[str]]:
    """Immediate traces of an experiment: its folder, and its entry in the index."""
    entries = [entry["id"] for entry in served.daemon.call("GET", "/experiments")["experiments"]]
    return sorted(path.name for path in served.data.iterdir()), entries
