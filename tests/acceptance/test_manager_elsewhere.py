"""A manager reached only by URL: it uses nothing of the caller's machine except what is sent."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.acceptance.command_line import CommandLine, command_line, id_in
from tests.live_daemon import Daemon
from tests.waiting import until

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(180)]

TOKEN = "correct horse battery staple"
TRIAL = """
import json, os
from lib.model import loss
with open(os.environ["NNI_OUTBOX"], "a") as outbox:
    outbox.write(json.dumps({"type": "final", "value": loss(os.getcwd())}) + "\\n")
"""
MODEL = """
from pathlib import Path
def loss(folder):
    return len(Path(folder, "data.txt").read_text())
"""
TUNER = """
from nni.tuner import Tuner
class Fixed(Tuner):
    def update_search_space(self, search_space):
        self.space = search_space
    def generate_parameters(self, parameter_id, **kwargs):
        return {"x": self.space["x"]["_value"][0]}
    def receive_trial_result(self, parameter_id, parameters, value, **kwargs):
        pass
"""


@pytest.fixture(scope="module")
def manager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A manager on a TCP port, with a token."""
    with command_line(tmp_path_factory.mktemp("manager")) as line:
        line.environment["NNI_MANAGER_TOKEN"] = TOKEN
        yield line.serve("--port", "0")


@pytest.fixture
def url(manager: Daemon) -> str:
    listeners = manager.call("GET", "/daemon")["listeners"]
    return next(listener["address"] for listener in listeners if listener["kind"] == "service")


@pytest.fixture
def caller(tmp_path: Path, url: str) -> Iterator[CommandLine]:
    """A simulated other machine: other folders, another home, no daemon."""
    with command_line(tmp_path) as line:
        line.environment |= {"NNI_MANAGER_ADDRESS": url, "NNI_MANAGER_TOKEN": TOKEN}
        for name, text in {
            "code/trial.py": TRIAL,
            "code/lib/model.py": MODEL,
            "code/data.txt": "12345",
            "code/tuners/fixed.py": TUNER,
            "code/left/out.txt": "x",
            "code/.nniignore": "left/\n",
            "space.json": '{"x": {"_type": "choice", "_value": [7]}}',
        }.items():
            (line.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (line.folder / name).write_text(text)
        yield line


def config(caller: CommandLine, **fields: object) -> Path:
    values = {
        "searchSpace": None,
        "searchSpaceFile": "space.json",
        "trialCommand": "python3 trial.py",
        "trialCodeDirectory": "code",
        "tuner": {"className": "fixed.Fixed", "codeDirectory": "code/tuners"},
        "maxTrialNumber": 2,
        **fields,
    }
    return caller.config(**values)


def test_code_is_sent_and_trials_run_it(caller: CommandLine, manager: Daemon, url: str) -> None:
    out = caller.good("create", "--config", config(caller), "--foreground")
    assert "2/2 done" in out and "Best (highest: direction not set) result 5" in out and '"x": 7' in out
    id_ = id_in(out)
    made = manager.status(id_)
    directory = Path(made["config"]["trialCodeDirectory"])
    assert directory == manager.data / id_ / "code" / "tree"
    assert made["config"]["tuner"]["codeDirectory"] == f"{directory}/tuners"
    assert sorted(path.name for path in directory.iterdir()) == [".nniignore", "data.txt", "lib", "trial.py", "tuners"]
    assert not caller.data.exists(), "no daemon was started here"
    assert [line for line in caller.processes() if " serve" in line] == []
    # nothing needs the caller's folder from here on
    shutil.rmtree(caller.folder / "code")
    caller.good("resume", id_)
    caller.good("update", "trialnum", id_, "--value", "3")
    manager.wait_for(id_, lambda state: state["counts"].get("SUCCEEDED") == 3)
    caller.good("stop", id_)
    assert caller.good("experiment", "list", "--all").count(id_) == 1
    assert caller.good("webui", "url", id_) == f"{url}/experiments/{id_}\n"
    assert "trial.py" not in caller.good("experiment", "delete", id_, "--yes")
    assert not (manager.data / id_).exists()


def test_same_code_is_sent_once(caller: CommandLine, manager: Daemon) -> None:
    before = _sent(manager)
    ids = [id_in(caller.good("create", "-c", config(caller))) for _ in range(2)]
    assert len(_sent(manager)) <= len(before) + 1
    (caller.folder / "code" / "data.txt").write_text("longer than before")
    ids.append(id_in(caller.good("create", "-c", config(caller))))
    values = {trial["finalValue"] for trial in _trials(manager, ids[-1])}
    assert values == {18.0}
    caller.good("stop", *ids)
    caller.good("experiment", "delete", *ids, "--yes")


def test_trial_cannot_change_the_code_of_the_next_experiment(caller: CommandLine, manager: Daemon) -> None:
    """Trials of an experiment share a code folder; the next experiment still runs the code that was sent."""
    spoil = "python3 trial.py && echo 'raise SystemExit(7)' > lib/model.py"
    for _ in range(2):
        out = caller.good("create", "-c", config(caller, trialCommand=spoil, maxTrialNumber=1), "--foreground")
        assert "1/1 done" in out and "Best (highest: direction not set) result 5" in out
        folder = manager.data / id_in(out)
        assert (folder / "code" / "tree" / "lib" / "model.py").read_text() == "raise SystemExit(7)\n"
    caller.good("stop", folder.name)
    (caller.folder / "moved").mkdir()
    moved = shutil.move(folder, caller.folder / "moved" / folder.name)
    (moved / "code" / "tree" / "lib" / "model.py").write_text("def loss(folder):\n    return 9\n")
    caller.good("resume", folder.name, "--experiment_dir", moved.parent)
    caller.good("update", "trialnum", folder.name, "--value", "2")
    manager.wait_for(folder.name, lambda state: state["counts"].get("SUCCEEDED") == 2)
    assert manager.status(folder.name)["best"]["value"] == 9
    caller.good("stop", folder.name)
    caller.good("experiment", "delete", folder.name, "--yes")
    assert not moved.exists()


def test_hints_lead_to_the_same_manager(caller: CommandLine, url: str) -> None:
    del caller.environment["NNI_MANAGER_ADDRESS"]
    (caller.folder / "token").write_text(TOKEN)
    caller.environment["NNI_MANAGER_TOKEN"] = ""
    there = ["--manager", url, "--token-file", str(caller.folder / "token")]
    out = caller.good("create", "-c", config(caller), *there, "--foreground")
    (view,) = re.findall(r"`nnictl (view .*?)` opens its page again", out)
    assert view.split() == ["view", id_in(out), *there]
    assert TOKEN not in out
    shown = caller.good(*view.split())
    (end,) = re.findall(r"`nnictl (stop .*?)` closes it", shown)
    assert end.split() == ["stop", id_in(out), *there]
    assert "is closed" in caller.good(*end.split())


def test_missing_or_wrong_token_is_named(caller: CommandLine) -> None:
    caller.environment["NNI_MANAGER_TOKEN"] = ""
    code, sentence = caller.bad("experiment", "list")
    assert code == 1 and "requires a token; set NNI_MANAGER_TOKEN" in sentence
    caller.environment["NNI_MANAGER_TOKEN"] = "wrong"
    code, sentence = caller.bad("create", "-c", config(caller))
    assert code == 1 and "refuses this token" in sentence and "wrong" not in sentence


def test_unreachable_manager_is_named(caller: CommandLine) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        code, sentence = caller.bad("experiment", "list", "--manager", f"http://127.0.0.1:{port}")
    assert code == 1 and f"http://127.0.0.1:{port} cannot be reached" in sentence and "refused" in sentence
    code, sentence = caller.bad("experiment", "list", "--manager", "nowhere")
    assert code == 2 and "is not the address of a manager" in sentence
    code, sentence = caller.bad("experiment", "list", "--manager", f"http://nowhere.invalid:{port}")
    assert code == 1 and "cannot be reached" in sentence
    assert not caller.data.exists()


def test_refused_experiment_leaves_nothing(caller: CommandLine, manager: Daemon) -> None:
    before = len(manager.call("GET", "/experiments")["experiments"])
    done = caller.run("create", "-c", config(caller, tuner={"name": "Theirs"}))
    assert done.returncode == 2 and "cannot find tuner 'Theirs'" in done.stderr
    (caller.folder / "code" / ".nniignore").write_text("tuners/\n")
    done = caller.run("create", "-c", config(caller))
    assert done.returncode == 2 and "tuner.codeDirectory: " in done.stderr
    assert len(manager.call("GET", "/experiments")["experiments"]) == before


def test_interrupted_upload_leaves_nothing(manager: Daemon, url: str) -> None:
    body = os.urandom(3_000_000)
    sha256 = hashlib.sha256(body).hexdigest()
    parts = httpx.URL(url)
    with socket.create_connection((parts.host, parts.port or 0)) as connection:
        head = (
            f"PUT /api/v1/code/{sha256} HTTP/1.1\r\nHost: {parts.host}\r\nAuthorization: Bearer {TOKEN}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        connection.sendall(head.encode() + body[:1_000_000])
        until(lambda: _drafts(manager), what="it has begun to come in")
    until(lambda: not _drafts(manager), what="nothing is left of it")
    answer = httpx.put(f"{url}/api/v1/code/{sha256}", content=body, headers={"Authorization": f"Bearer {TOKEN}"})
    assert answer.status_code == 400 and "cannot be read" in answer.json()["error"]
    assert not any(sha256 in path.name for path in _sent(manager))


def test_code_upload_needs_the_token(url: str) -> None:
    answer = httpx.put(f"{url}/api/v1/code/{'0' * 64}", content=b"x")
    assert answer.status_code == 401 and TOKEN not in answer.text


def _drafts(manager: Daemon) -> list[Path]:
    return list((manager.data / "code").glob(".incoming-*"))


def _sent(manager: Daemon) -> set[Path]:
    return set((manager.data / "code").glob("*"))


def _trials(manager: Daemon, id_: str) -> list[dict]:
    manager.wait(id_, "DONE")
    return list(manager.call("GET", f"/experiments/{id_}/trials")["trials"])
