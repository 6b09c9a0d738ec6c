"""Commands that only read: logs of an experiment, its config, its page, top."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from fake_manager import FakeManager, state, trial

from nni_manager.cli.experiment import watch

pytestmark = pytest.mark.unit

Run = Callable[..., Result]
LINES = b"".join(b"line %d\n" % number for number in range(20_000))


# log stdout, log stderr


@pytest.fixture
def logs(manager: FakeManager) -> FakeManager:
    manager.add(state("abc"))
    manager.experiment_logs = {"nnimanager.log": LINES, "dispatcher.log": b"a\n\xff\nend"}
    return manager


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], LINES),
        (["--head", "2"], b"line 0\nline 1\n"),
        (["-H", "30000"], LINES),
        (["--tail", "2"], b"line 19998\nline 19999\n"),
        (["-T", "30000"], LINES),
        (["--path"], b"/data/abc/log/nnimanager.log\n"),
    ],
)
def test_log_stdout(nnictl: Run, logs: FakeManager, words: list[str], text: bytes) -> None:
    assert nnictl("log", "stdout", "abc", *words).stdout_bytes == text


def test_log_stderr_is_tuner_output(nnictl: Run, logs: FakeManager) -> None:
    assert nnictl("log", "stderr").stdout_bytes == b"a\n\xff\nend"
    assert nnictl("log", "stderr", "--path").stdout == "/data/abc/log/dispatcher.log\n"
    assert nnictl("log", "stderr", "--tail", "1", "--head", "1").exit_code == 2


def test_a_log_that_is_not_there_yet_is_empty(nnictl: Run, manager: FakeManager) -> None:
    manager.add(state("abc"))
    assert (nnictl("log", "stdout").stdout_bytes, nnictl("log", "stdout", "-T", "3").stdout_bytes) == (b"", b"")


# config show


def test_config_show(nnictl: Run, manager: FakeManager) -> None:
    manager.add(state("abc", "STOPPED", config={"trialCommand": "true"}))
    assert json.loads(nnictl("config", "show", "ab").stdout) == {"trialCommand": "true"}
    assert nnictl("config", "show").exit_code == 1, "which one is not clear"


# webui url


ENDPOINT = {"port": 8080, "urlPrefix": "", "url": "http://127.0.0.1:8080/"}


def test_the_page_of_a_view_and_of_the_service(nnictl: Run, manager: FakeManager) -> None:
    manager.add(state("abc", endpoint=ENDPOINT))
    assert nnictl("webui", "url").stdout == "http://127.0.0.1:8080/\n"
    manager.listeners = [{"kind": "control", "address": "/x"}, {"kind": "service", "address": "http://127.0.0.1:9000"}]
    assert nnictl("webui", "url", "abc").stdout.splitlines()[1] == "http://127.0.0.1:9000/experiments/abc"


def test_listener_on_all_interfaces_shows_machine_name(
    nnictl: Run, manager: FakeManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "gpu-box")
    manager.add(state("abc", endpoint=None))
    manager.listeners = [{"kind": "service", "address": "http://0.0.0.0:9000"}]
    assert nnictl("webui", "url").stdout == "http://gpu-box:9000/experiments/abc\n"


def test_a_manager_elsewhere_is_shown_as_it_was_called(nnictl: Run, manager: FakeManager) -> None:
    manager.add(state("abc"))
    manager.listeners = [{"kind": "service", "address": "http://0.0.0.0:9000"}]
    shown = nnictl("webui", "url", "--manager", "https://gpu-box/nni/").stdout
    assert shown == "https://gpu-box/nni/experiments/abc\n"


def test_no_page(nnictl: Run, manager: FakeManager) -> None:
    manager.add(state("abc", endpoint=None), state("def", "STOPPED", endpoint=None))
    result = nnictl("webui", "url")
    assert result.exit_code == 1 and "experiment abc has no page" in result.stderr and result.stdout == ""
    assert "`nnictl resume abc --port 8080`" in result.stderr
    assert "`nnictl view def --port 8080`" in nnictl("webui", "url", "def").stderr


def test_webui_opens_a_finished_experiment(nnictl: Run, manager: FakeManager, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a page a view opens one; with one nothing is changed."""
    manager.add(state("abc", "STOPPED", endpoint=None))
    view = manager.view

    def opened(id: str, **how: Any) -> None:
        view(id, **how)
        manager.known[id] = state(id, "VIEWED", endpoint=ENDPOINT)

    monkeypatch.setattr(manager, "view", opened)
    for _ in range(2):
        shown = nnictl("webui", "ab")
        assert (shown.exit_code, shown.stdout) == (0, "http://127.0.0.1:8080/\n")
    assert manager.calls == [("view", "abc", {"endpoint": {"port": None, "urlPrefix": ""}, "working_directory": None})]


def test_webui_of_an_open_experiment_is_its_page(nnictl: Run, manager: FakeManager) -> None:
    manager.add(state("abc", endpoint=ENDPOINT))
    assert nnictl("webui").stdout == nnictl("webui", "open", "abc").stdout == "http://127.0.0.1:8080/\n"
    manager.add(state("abc", endpoint=None))
    refused = nnictl("webui", "abc")
    assert refused.exit_code == 1 and "nnictl resume abc --port" in refused.stderr and manager.calls == []


# top


def test_top_on_a_pipe_shows_one_picture(nnictl: Run, manager: FakeManager) -> None:
    manager.add(state("abc", errors=["no GPU"], counts={"RUNNING": 1}), state("xyz", "STOPPED"))
    manager.trials_of["abc"] = [
        trial("aaaaa", 0),
        trial("bbbbb", 1, "RUNNING", startedMs=1_790_000_000_000, lastValue=0.25),
    ]
    lines = nnictl("top").stdout.splitlines()
    assert lines[0] == "abc  digits  RUNNING  local"
    assert lines[1].strip().startswith("0/10 done, 1 running") and lines[2].strip() == "no GPU"
    assert lines[4].split()[:3] == ["1", "bbbbb", "RUNNING"] and lines[4].endswith("0.25")
    assert len(lines) == 5


def test_top_with_nothing_open(nnictl: Run) -> None:
    assert nnictl("top", "--time", "1").stdout == "No experiment is open.\n"
    assert nnictl("top", "-t", "0").exit_code == 2


def test_top_redraws_until_it_is_interrupted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("LINES", "10")
    pictures = iter(["first", "\n".join(f"line {number} is too long for it" for number in range(30))])
    pauses = iter([None])

    def pause() -> None:
        if next(pauses, KeyboardInterrupt) is KeyboardInterrupt:
            raise KeyboardInterrupt

    watch._redraw(lambda: next(pictures), pause)
    written = capsys.readouterr().out
    first, second = written.split("\x1b[H\x1b[J")[1:]
    assert first == "first"
    shown = second.removesuffix("\x1b[?1049l").splitlines()
    assert written.startswith("\x1b[?1049h") and written.endswith("\x1b[?1049l")
    assert len(shown) == 9 and shown[0] == "line 0 is too long …" and shown[-1] == "… 22 more lines"


def test_top_gives_the_screen_back_when_the_daemon_goes_away(capsys: pytest.CaptureFixture[str]) -> None:
    def gone() -> str:
        raise ConnectionError

    with pytest.raises(ConnectionError):
        watch._redraw(gone, lambda: None)
    assert capsys.readouterr().out.endswith("\x1b[?1049l")


# platform clean


def test_platform_clean_reports_each_outcome(nnictl: Run, manager: FakeManager) -> None:
    one = {"experiment": "abc", "service": "openpai-2", "platform": "openpai", "jobs": 3, "trouble": ""}
    manager.cleaned = [one]
    result = nnictl("platform", "clean")
    assert (result.exit_code, result.stdout) == (0, "3 jobs of experiment abc on openpai-2: ended.\n")
    manager.cleaned = [one, {**one, "jobs": None, "trouble": "no route to host"}]
    result = nnictl("platform", "clean", "openpai")
    assert result.exit_code == 1 and "jobs of experiment abc on openpai-2: no route to host." in result.stdout
    assert manager.calls[-1] == ("clean", ["openpai"])


def test_stop_names_trials_that_may_run(nnictl: Run, manager: FakeManager) -> None:
    left = {"code": "MAY_STILL_RUN", "message": "2 jobs may still run on openpai: no route to host"}
    manager.add(state("abc", warnings=[left, {"code": "OTHER", "message": "never mind"}]))
    result = nnictl("stop", "abc")
    assert result.exit_code == 0
    assert result.stderr == "warning: 2 jobs may still run on openpai: no route to host\n"


def test_platform_clean(nnictl: Run, manager: FakeManager, tmp_path: Path) -> None:
    file = tmp_path / "experiment.yml"
    for text in ("trainingService: {platform: local}", "training_service: [{platform: local}]"):
        file.write_text(text)
        result = nnictl("platform", "clean", "--config", str(file))
        assert (result.exit_code, result.stdout[:24]) == (0, "There is nothing to clea")
        assert manager.calls.pop() == ("clean", ["local"])
    for text in ("a: 1", "[", "3", ""):
        file.write_text(text)
        assert nnictl("platform", "clean", "-c", str(file)).exit_code == 2
    assert nnictl("platform", "clean", "-c", str(tmp_path / "nowhere")).exit_code == 2


LEFT = {"experiment": "abc", "manager": "another", "what": "TFJob nni-exp-abc-trial-x", "createdMs": 0, "stays": ""}
CLUSTER = {
    "searchSpace": {},
    "trialConcurrency": 1,
    "tuner": {"name": "Random"},
    "trialCommand": "true",
    "trainingService": {"platform": "kubeflow"},
}


@pytest.fixture
def cluster_config(tmp_path: Path) -> str:
    file = tmp_path / "experiment.yml"
    file.write_text(json.dumps(CLUSTER))
    return str(file)


@pytest.mark.parametrize(
    ("words", "answers", "is_removed"),
    [
        (["--yes"], "", True),
        ([], "y\n", True),
        ([], "n\n", False),
        ([], "", False),
    ],
)
def test_cluster_leftovers_are_removed_after_confirmation(
    nnictl: Run, manager: FakeManager, cluster_config: str, words: list[str], answers: str, is_removed: bool
) -> None:
    manager.left_objects = [LEFT, {**LEFT, "what": "Secret s"}, {**LEFT, "what": "Secret t"}]
    result = nnictl("platform", "clean", "--config", cluster_config, *words, input=answers)
    head = "experiment abc, of another manager, which may be running it: 1 TFJob, 2 Secrets, "
    assert result.stdout.startswith(head) and "  TFJob nni-exp-abc-trial-x\n  Secret s\n" in result.stdout
    assert (("left", ["abc"]) in manager.calls) is is_removed
    assert result.exit_code == (0 if is_removed else 1)
    kept = "objects of abc were kept; use --yes to remove them without a question"
    assert (kept in result.stderr) is not is_removed
    assert ("experiment abc: 1 TFJob, 2 Secrets removed." in result.stdout) is is_removed


def test_protected_cluster_objects_are_not_asked_about(nnictl: Run, manager: FakeManager, cluster_config: str) -> None:
    manager.left_objects = [{**LEFT, "stays": "pods of another kind of job may need it"}]
    result = nnictl("platform", "clean", "--config", cluster_config, "--yes")
    assert (result.exit_code, manager.calls) == (0, [("clean", ["kubeflow"]), ("left", None)])
    assert "  stays: pods of another kind of job may need it\n" in result.stdout
    manager.left_objects, manager.left_trouble = [], "no route to host"
    result = nnictl("platform", "clean", "--config", cluster_config)
    assert result.exit_code == 1 and "kubeflow: no route to host" in result.stderr


# what is not here


@pytest.mark.parametrize(
    "words",
    [
        ["jupyter-extension", "install"],
        ["hello"],
        ["package", "list", "--all"],
        ["ss_gen", "--trial_command", "python3 x.py", "-d", "."],
        ["auto_gen", "--trial_dir", ".", "--file", "space.json"],
        ["trainingservice", "register", "--package", "x"],
        ["experiment", "save", "abc", "--path", "x", "-s"],
        ["experiment", "load", "--path", "x", "--codeDir", "y"],
    ],
)
def test_unsupported_commands_name_an_alternative(nnictl: Run, words: list[str]) -> None:
    result = nnictl(*words)
    assert result.exit_code == 1 and result.stdout == ""
    assert len(result.stderr.splitlines()) == 1 and len(result.stderr) > 60
    name = words[1] if words[0] == "experiment" else words[0]
    assert result.stderr.startswith(f"nnictl: {name}: ")
    assert nnictl(*words[:2], "--help").exit_code == 0 or nnictl(words[0], "--help").exit_code == 0


# experiment delete


def test_delete_all_that_are_stopped(nnictl: Run, manager: FakeManager) -> None:
    manager.add(state("abc", "STOPPED"), state("abd", "STOPPED"), state("xyz"), state("xzz", "VIEWED"))
    result = nnictl("experiment", "delete", "--all", input="n\n")
    assert result.exit_code == 1 and "2 experiments were kept" in result.stderr and manager.calls == []
    assert nnictl("experiment", "delete", "ab*", "-y").exit_code == 0
    assert manager.calls == [("delete", "abc"), ("delete", "abd")]
    manager.calls.clear()
    assert nnictl("experiment", "delete", "--all", "--yes").exit_code == 0
    assert manager.calls == [("delete", "abc"), ("delete", "abd")], "one that is viewed is open"


def test_delete_wants_to_know_which(nnictl: Run, manager: FakeManager) -> None:
    assert nnictl("experiment", "delete", "--all").stdout == "No experiment is stopped.\n"
    assert nnictl("experiment", "delete").exit_code == 2
    assert nnictl("experiment", "delete", "abc", "--all").exit_code == 2
    assert nnictl("experiment", "delete", "ab*", "-y").exit_code == 1
