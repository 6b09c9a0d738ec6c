"""The commands of nnictl: requests to the daemon, output, exit codes."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from fake_manager import CONFIG, FakeManager, service, state, trial

from nni_manager import __version__
from nni_manager.cli import output
from nni_manager.cli.main import nni_manager
from nni_manager.cli.main import nnictl as nnictl_group
from nni_manager.domain.errors import ConfigInvalid, Conflict, NotFound, Problem

pytestmark = pytest.mark.unit

Run = Callable[..., Result]
#: The daemon knows whether a port is needed.
ANY_PORT = {"port": None, "urlPrefix": ""}


# create, resume, stop


def test_create_sends_what_the_daemon_needs(nnictl: Run, manager: FakeManager, file: Path, monkeypatch) -> None:
    monkeypatch.chdir(file.parent.parent)
    monkeypatch.setenv("NNI_MANAGER_TOKEN", "s3cret")
    monkeypatch.setenv("LATIN", os.fsdecode(b"\xe9"))
    monkeypatch.setenv("DATASET", "/data/digits")
    given = os.path.join(file.parent.name, file.name)
    result = nnictl("create", "--config", given)
    assert result.exit_code == 0, result.output
    ((_, text, caller),) = manager.calls
    assert text == CONFIG
    assert caller["file"] == given and caller["directory"] == str(file.parent)
    assert "interpreter" not in caller, "the daemon looks along the caller's PATH"
    assert caller["environment"]["DATASET"] == "/data/digits"
    assert "NNI_MANAGER_TOKEN" not in caller["environment"] and "LATIN" not in caller["environment"]


def test_create_prints_name_page_and_logs(nnictl: Run, manager: FakeManager, file: Path) -> None:
    manager.endpoint_of_new = {"port": 8080, "urlPrefix": "", "url": "http://127.0.0.1:8080/"}
    lines = nnictl("create", "-c", str(file)).stdout.splitlines()
    assert lines[:3] == [
        "Experiment new00000 (digits) started.",
        "Page  http://127.0.0.1:8080/",
        "Logs  /data/new00000",
    ]


def test_create_without_a_page_says_how_to_open_one(nnictl: Run, file: Path) -> None:
    page = nnictl("create", "-c", str(file), "--data-dir", "/my data").stdout.splitlines()[1]
    assert "`nnictl resume new00000 --port 8080 --data-dir '/my data'`" in page


@pytest.mark.parametrize(("words", "count"), [((), 3), (("--nni-output",), 7)])
def test_create_on_a_terminal_prints_nni_lines_on_request(
    nnictl: Run, manager: FakeManager, file: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], count: int
) -> None:
    manager.endpoint_of_new = {"port": 8080, "urlPrefix": "", "url": "http://127.0.0.1:8080/"}
    monkeypatch.setattr("nni_manager.cli.experiment.create.is_terminal", lambda: True)
    assert len(nnictl("create", "-c", str(file), *words).stdout.splitlines()) == count


def test_create_prints_what_scripts_of_nnis_users_look_for(nnictl: Run, manager: FakeManager, file: Path) -> None:
    """The wording of NNI 2 and NNI 3."""
    manager.endpoint_of_new = {"port": 8080, "urlPrefix": "", "url": "http://127.0.0.1:8080/"}
    out = nnictl("create", "-c", str(file), "-p", "8080").stdout
    assert re.findall(r"experiment id is (\w+)$|Experiment ID: (\w+)$", out, re.MULTILINE) == [
        ("new00000", ""),
        ("", "new00000"),
    ]
    urls = re.findall(r"(?:Web UI urls are|Web portal URLs): *(\S+)$", out, re.MULTILINE)
    assert urls == ["http://127.0.0.1:8080"] * 2, "scripts put /api/v1/nni behind it"


def test_every_command_of_nnictl_is_one_of_nni_manager_too(manager: FakeManager, file: Path) -> None:
    """Where both packages are installed, nnictl is the one that was installed last."""
    assert set(names(nnictl_group)) < set(names(nni_manager))
    words = ["create", "-c", str(file)]
    done = CliRunner().invoke(nni_manager, words, obj=lambda directory: manager)
    assert done.exit_code == 0 and "Experiment new00000 (digits) started." in done.stdout.splitlines()


def names(group: click.Group) -> list[str]:
    return group.list_commands(click.Context(group))


def of_all(group: click.Group) -> Iterator[tuple[str, click.Command]]:
    """Each command of a group and of groups in it, with its name."""
    for name in names(group):
        command = group.get_command(click.Context(group), name)
        assert command is not None
        yield name, command
        if isinstance(command, click.Group):
            yield from of_all(command)


def test_commands_are_imported_by_the_names_that_they_have() -> None:
    found = list(of_all(nni_manager)) + list(of_all(nnictl_group))
    assert len(found) > 100
    assert [(name, command.name) for name, command in found if name not in (command.name, "reg", "unreg")] == []


def test_create_in_the_foreground(nnictl: Run, manager: FakeManager, file: Path) -> None:
    best = {"trialId": "ab1cd", "value": 0.5, "parameters": {"x": 1}}
    manager.stream = [state("new00000", "DONE", counts={"SUCCEEDED": 10}, best=best)]
    result = nnictl("create", "-c", str(file), "-f")
    assert result.exit_code == 0, result.output
    assert "10/10 done" in result.stdout and "Best result 0.5" in result.stdout
    assert manager.calls[-1] == ("stop", "new00000")


def test_create_passes_a_failure_on(nnictl: Run, manager: FakeManager, file: Path) -> None:
    manager.stream = [state("new00000", "ERROR", errors=["the store is corrupt"])]
    result = nnictl("create", "-c", str(file), "--foreground")
    assert result.exit_code == 1
    assert "the store is corrupt" in result.stderr


def test_create_lists_every_problem(nnictl: Run, manager: FakeManager, file: Path) -> None:
    manager.refusal = ConfigInvalid(
        [
            Problem(message="is unknown", field="colour", file="a.yml", line=3),
            Problem(message="is empty", file="a.yml"),
        ]
    )
    result = nnictl("create", "-c", str(file))
    assert result.exit_code == 2
    assert result.stderr == "a.yml:3: colour: is unknown\na.yml: is empty\n"


def test_a_file_that_cannot_be_read_starts_no_daemon(nnictl: Run, manager: FakeManager, tmp_path: Path) -> None:
    result = nnictl("create", "-c", str(tmp_path / "nowhere.yml"))
    assert result.exit_code == 2
    assert "nowhere.yml: cannot be read: No such file or directory" in result.stderr
    assert manager.calls == []


def test_a_folder_whose_name_is_not_utf_8_is_refused(nnictl: Run, manager: FakeManager, tmp_path: Path) -> None:
    folder = tmp_path / "\udcff"
    folder.mkdir()
    (folder / "experiment.yml").write_text(CONFIG)
    result = nnictl("create", "-c", str(folder / "experiment.yml"))
    assert result.exit_code == 2 and r"\udcff" in result.stderr and "not UTF-8" in result.stderr
    assert manager.calls == []


def test_resume(nnictl: Run, manager: FakeManager) -> None:
    manager.add(state("abc", "STOPPED"))
    assert "Experiment abc (digits) is running again." in nnictl("resume", "ab").stdout
    assert manager.calls == [("resume", "abc", {"endpoint": ANY_PORT, "working_directory": None, "debug": False})]


@pytest.mark.parametrize(
    ("words", "stopped"),
    [([], ["abc"]), (["abc"], ["abc"]), (["a*"], ["abc"]), (["--all"], ["abc"]), (["xyz", "abc"], ["xyz", "abc"])],
)
def test_stop(nnictl: Run, manager: FakeManager, words: list[str], stopped: list[str]) -> None:
    manager.add(state("abc"), state("xyz", "STOPPED"))
    result = nnictl("stop", *words)
    told = {"abc": "Experiment abc is stopped.", "xyz": "Experiment xyz was already stopped."}
    assert result.stdout.splitlines() == [told[id] for id in stopped]
    assert manager.calls == [("stop", id) for id in stopped]


def test_stop_all_with_nothing_open(nnictl: Run) -> None:
    result = nnictl("stop", "-a")
    assert (result.exit_code, result.stdout) == (0, "No experiment is open.\n")


def test_stop_takes_ids_or_all(nnictl: Run, manager: FakeManager) -> None:
    manager.add(state("abc"))
    assert nnictl("stop", "abc", "--all").exit_code == 2
    assert manager.calls == []


# experiment


def test_list_shows_open_ones(nnictl: Run, manager: FakeManager) -> None:
    hold = {"code": "TUNER_DIED", "sentence": "the tuner died", "details": ""}
    manager.add(state("abc", hold=hold, errors=["the tuner died"]), state("xyz", "STOPPED", name=None))
    lines = nnictl("experiment", "list").stdout.splitlines()
    assert lines[0].split()[:7] == ["ID", "NAME", "STATUS", "TRIALS", "BEST", "PLATFORM", "PORT"]
    assert [line.split()[0] for line in lines[1:]] == ["abc"]
    assert lines[1].endswith("  on hold: the tuner died")
    assert len(nnictl("experiment", "list", "--all").stdout.splitlines()) == 3


def test_list_as_json(nnictl: Run, manager: FakeManager) -> None:
    manager.add(state("abc"), state("xyz", "STOPPED"))
    assert [one["id"] for one in json.loads(nnictl("experiment", "list", "--json").stdout)] == ["abc"]
    assert json.loads(nnictl("experiment", "list", "--json", "--all").stdout) == list(manager.known.values())


def test_unencodable_text_on_stdout_is_escaped(nnictl: Run, manager: FakeManager) -> None:
    """Old experiments contain lone surrogates, and a folder's name may not be UTF-8."""
    manager.add(state("abc", name="half \ud800", logPath="/tmp/\udcff"))
    shown = nnictl("experiment", "show", "--json")
    assert shown.exit_code == 0 and json.loads(shown.stdout)["name"] == "half \ud800"
    assert "half \\ud800" in nnictl("experiment", "list").stdout


def test_empty_lists_are_sentences(nnictl: Run) -> None:
    assert nnictl("experiment", "list").stdout == "No experiment is open; --all lists closed ones too.\n"
    assert nnictl("experiment", "list", "--all").stdout == "No experiments.\n"


def test_show(nnictl: Run, manager: FakeManager) -> None:
    best = {"trialId": "ab1cd", "value": 0.25, "parameters": {"x": 1}}
    manager.add(state("abc", counts={"SUCCEEDED": 2, "RUNNING": 1}, best=best, trialsMade=3))
    lines = dict(line.split("  ", 1) for line in nnictl("experiment", "show").stdout.splitlines())
    facts = {name: value.strip() for name, value in lines.items()}
    assert facts["trials"] == "2 SUCCEEDED, 1 RUNNING"
    assert facts["best"] == "0.25 (trial ab1cd)" and facts["best parameters"] == '{"x": 1}'
    assert facts["config"] == '{"trialCommand": "python3 trial.py"}'
    shown = json.loads(nnictl("experiment", "show", "abc", "--json").stdout)
    assert shown == {**manager.known["abc"], "provenance": None, "disk": manager.disk_use("abc")}


def test_status_names_reason_of_hold(nnictl: Run, manager: FakeManager) -> None:
    hold = {"code": "TUNER_RAISED", "sentence": "the tuner raised KeyError", "details": "Traceback\nKeyError"}
    manager.add(state("abc", hold=hold, errors=["the tuner raised KeyError", "no GPU"]))
    result = nnictl("experiment", "status")
    assert "on hold: the tuner raised KeyError; no GPU\n" in result.stdout
    assert result.stdout.endswith("Traceback\nKeyError\n")
    assert json.loads(nnictl("experiment", "status", "--json").stdout) == {
        "id": "abc",
        "status": "RUNNING",
        "endedAs": None,
        "hold": hold,
        "errors": ["the tuner raised KeyError", "no GPU"],
        "waitsFor": None,
        "warnings": [],
        "services": [],
    }


def test_status_prints_the_hold_of_a_service_once(nnictl: Run, manager: FakeManager) -> None:
    sentence = "slurm will never start the job of trial ab1cd as it is"
    hold = {"code": "NEVER_STARTS", "sentence": sentence, "details": ""}
    held = service("slurm", status="on hold", sentence=sentence, openAttempts=1)
    wait = {"sentence": f"slurm is on hold: {sentence}", "sinceMs": None}
    manager.add(state("abc", hold=hold, errors=[sentence], waitsFor=wait, services=[held]))
    shown = nnictl("experiment", "status").stdout
    assert shown.count(sentence) == 1 and "on hold since 2026" in shown and "; 1 trial there" in shown


def test_status_tells_how_each_training_service_is(nnictl: Run, manager: FakeManager) -> None:
    away = service("openpai", status="away", sentence="no route to host", openAttempts=2)
    full = service("openpai-2", sentence="no GPU is free", room=0, limit=4, openAttempts=4)
    one = service("openpai-3", openAttempts=1)
    manager.add(state("abc", services=[away, full, one, service("local", status=None)]))
    lines = dict(line.split("  ", 1) for line in nnictl("experiment", "status").stdout.splitlines())
    assert lines["on openpai"].strip().startswith("away since 20")
    assert lines["on openpai"].endswith(": no route to host; 2 trials there")
    assert lines["on openpai-2"].endswith(": no GPU is free; 4 of 4 trials there; room for 0 more")
    assert lines["on openpai-3"].endswith("; 1 trial there")
    assert "on local" not in lines


@pytest.mark.parametrize(("words", "answer"), [(["--yes"], None), ([], "y\n")])
def test_delete(nnictl: Run, manager: FakeManager, words: list[str], answer: str | None) -> None:
    manager.add(state("abc", "STOPPED"))
    result = nnictl("experiment", "delete", "abc", *words, input=answer)
    assert result.exit_code == 0 and "Experiment abc is removed." in result.stdout
    assert manager.calls == [("delete", "abc")]


def test_delete_one_that_cannot_be_read(nnictl: Run, manager: FakeManager, monkeypatch: pytest.MonkeyPatch) -> None:
    manager.add(state("abc", "STOPPED"))
    monkeypatch.setattr(manager, "experiment", _raise_gone)
    result = nnictl("experiment", "delete", "abc", input="y\n")
    assert result.exit_code == 0 and "Remove experiment abc and everything in /data/abc?" in result.stdout
    assert manager.calls == [("delete", "abc")]


def _raise_gone(id: str) -> None:
    raise NotFound(f"the folder of experiment {id} is gone: /data/{id}")


@pytest.mark.parametrize("answer", ["n\n", "\n", ""])
def test_delete_asks_first(nnictl: Run, manager: FakeManager, answer: str) -> None:
    manager.add(state("abc", "STOPPED"))
    result = nnictl("experiment", "delete", "abc", input=answer)
    assert result.exit_code == 1
    assert result.stderr.endswith("nnictl: experiment abc was kept; --yes removes it without a question\n")
    assert manager.calls == []


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("maxTrialNumber (10) is reached", "`nnictl update trialnum abc -v NUMBER`"),
        ("maxExperimentDuration (1h) is reached", "`nnictl update duration abc -v DURATION`"),
        ("the tuner has no more proposals", "`nnictl update searchspace abc -f FILE`"),
    ],
)
def test_resume_of_a_done_experiment_names_the_limit_to_raise(
    nnictl: Run, manager: FakeManager, reason: str, said: str
) -> None:
    manager.add(state("abc", "DONE", noMoreTrials=reason))
    assert nnictl("resume", "abc").stderr == f"warning: it creates no more trials: {reason}; for more, run {said}\n"
    assert f"status    DONE: {reason}\n" in nnictl("experiment", "status", "abc").stdout


# trial


TRIALS = [
    trial("aaaaa", 0, value=0.5),
    trial("bbbbb", 1, value=0.9, place="hostA, gpu 0"),
    trial("ccccc", 2, "FAILED", reason="USER_CODE", message="exit code 1"),
    trial("ddddd", 3, "WAITING", startedMs=None, wait={"code": "CONCURRENCY", "sentence": "waits for a free slot"}),
    trial("eeeee", 4, finalResult="NaN"),
    trial("fffff", 5, "EARLY_STOPPED", value=0.1),
    trial("ggggg", 6, "USER_CANCELED", value=1.5),
]


@pytest.mark.parametrize(
    ("words", "ids"),
    [
        ([], ["aaaaa", "bbbbb", "ccccc", "ddddd", "eeeee", "fffff", "ggggg"]),
        (["--head", "1"], ["bbbbb"]),
        (["--head", "9"], ["bbbbb", "aaaaa"]),
        (["--tail", "1"], ["aaaaa"]),
    ],
)
def test_trial_ls(nnictl: Run, manager: FakeManager, words: list[str], ids: list[str]) -> None:
    manager.add(state("abc"))
    manager.trials_of["abc"] = TRIALS
    assert [line.split()[1] for line in nnictl("trial", "ls", *words).stdout.splitlines()[1:]] == ids
    assert [one["id"] for one in json.loads(nnictl("trial", "ls", "abc", "--json", *words).stdout)] == ids


def test_the_best_trials_of_a_search_for_small_results(nnictl: Run, manager: FakeManager) -> None:
    best = {"trialId": "aaaaa", "value": 0.5, "parameters": {"x": 0}}
    manager.add(state("abc", optimizeMode="minimize", best=best))
    manager.trials_of["abc"] = TRIALS
    assert nnictl("trial", "ls", "--head", "1").stdout.splitlines()[1].split()[1] == "aaaaa"
    assert nnictl("trial", "ls", "--tail", "1").stdout.splitlines()[1].split()[1] == "bbbbb"
    assert "best (lowest) 0.5 (trial aaaaa)" in nnictl("experiment", "status").stdout
    assert "best (lowest) " in nnictl("experiment", "show").stdout


def test_closed_experiment_that_was_done_looks_done(nnictl: Run, manager: FakeManager) -> None:
    manager.add(state("abc", "STOPPED", endedAs="DONE"), state("xyz", "STOPPED"))
    lines = nnictl("experiment", "list", "--all").stdout.splitlines()
    assert "DONE (closed)" in lines[1] and "STOPPED" in lines[2]
    assert "DONE (closed)" in nnictl("experiment", "status", "abc").stdout
    assert json.loads(nnictl("experiment", "status", "abc", "--json").stdout)["endedAs"] == "DONE"
    for status, ids in (("DONE", {"abc"}), ("STOPPED", {"abc", "xyz"})):
        found = json.loads(nnictl("experiment", "list", "--status", status, "--json").stdout)
        assert {one["id"] for one in found} == ids


def test_best_names_default_that_decides_direction(nnictl: Run, manager: FakeManager) -> None:
    best = {"trialId": "aaaaa", "value": 0.5, "parameters": {"x": 0}}
    manager.add(state("abc", optimizeMode="minimize", directionNote="default of TPE", best=best))
    assert "best (lowest: default of TPE) 0.5 (trial aaaaa)" in nnictl("experiment", "status").stdout
    assert "best (lowest: default of TPE) " in nnictl("experiment", "show").stdout


def test_an_update_that_ends_the_search_says_so(nnictl: Run, manager: FakeManager) -> None:
    manager.add(state("abc", noMoreTrials="maxTrialNumber (3) is reached", trialsMade=5))
    said = nnictl("update", "trialnum", "-v", "3").stdout.splitlines()
    assert said[1] == "It creates no more trials: maxTrialNumber (3) is reached, and 5 were created."


def test_stop_of_a_prefix_falls_back_to_closed_experiments(nnictl: Run, manager: FakeManager) -> None:
    manager.add(state("abc", "STOPPED"), state("xyz"))
    nnictl("stop", "ab")
    assert manager.calls == [("stop", "abc")]


def test_trial_ls_shows_results_and_reasons(nnictl: Run, manager: FakeManager) -> None:
    manager.add(state("abc"))
    manager.trials_of["abc"] = TRIALS
    lines = nnictl("trial", "ls").stdout.splitlines()
    assert lines[0].split() == ["NO", "ID", "STATUS", "RESULT", "TIME", "x", "WHERE", "WHY"]
    assert lines[1].split() == ["0", "aaaaa", "SUCCEEDED", "0.5", "1", "min", "5", "s", "0", "local"]
    assert "  hostA, gpu 0" in lines[2]
    assert lines[3].endswith("  its command failed, exit code 1 (USER_CODE)")
    assert lines[4].endswith("  waits for a free slot")
    assert "NaN" in lines[5]


def test_a_trial_that_runs_has_its_time_and_its_last_result(nnictl: Run, manager: FakeManager) -> None:
    manager.add(state("abc"))
    started = round(time.time() * 1000) - 3_600_500
    manager.trials_of["abc"] = [trial("aaaaa", 0, "RUNNING", startedMs=started, endedMs=None, lastValue=0.25)]
    words = nnictl("trial", "ls").stdout.splitlines()[1].split()
    assert words[2:6] == ["RUNNING", "0.25", "so", "far"] and words[6:10] == ["1", "h", "0", "min"]


def test_the_list_says_what_is_on_hold(nnictl: Run, manager: FakeManager) -> None:
    manager.add(state("abc", hold={"code": "SAME_FAILURE", "sentence": "put it right", "details": ""}))
    line = nnictl("experiment", "list").stdout.splitlines()[1]
    assert "  ON HOLD  " in line and "on hold: put it right" in line


@pytest.mark.parametrize("terminal", [None, 80, 200])
def test_list_cuts_a_problem_to_one_line_and_status_shows_all(
    nnictl: Run, manager: FakeManager, monkeypatch: pytest.MonkeyPatch, terminal: int | None
) -> None:
    monkeypatch.setattr(output, "terminal_width", lambda: terminal)
    why = f"gpu-box does not answer: {'no route to host ' * 20}at all"
    manager.add(state("abc", errors=[why]))
    _, *lines = nnictl("experiment", "list").stdout.splitlines()
    assert len(lines) == (1 if terminal != 80 else 2)
    assert re.search(r"gpu-box does not answer: .{,76}…$", lines[-1])
    assert "at all" in nnictl("experiment", "status", "abc").stdout


def test_list_and_status_name_the_wait(nnictl: Run, manager: FakeManager) -> None:
    since_ms = (time.time() - 240) * 1000
    manager.add(state("abc", waitsFor={"sentence": "remote is away: no route to host", "sinceMs": since_ms}))
    assert "  waits for 4 min 0 s: remote is away: no route to host" in nnictl("experiment", "list").stdout
    assert "waits for 4 min 0 s: remote is away" in " ".join(nnictl("experiment", "status").stdout.split())


def test_wait_for_resources_says_waits_once(nnictl: Run, manager: FakeManager) -> None:
    since_ms = (time.time() - 240) * 1000
    manager.add(state("abc", waitsFor={"sentence": "waits for resources", "sinceMs": since_ms}))
    assert "  waits for 4 min 0 s: for resources" in nnictl("experiment", "list").stdout


def test_the_list_shows_trials_and_the_best(nnictl: Run, manager: FakeManager) -> None:
    best = {"trialId": "ab1cd", "value": 0.123456789, "parameters": {"x": 1}}
    manager.add(state("abc", counts={"SUCCEEDED": 2, "RUNNING": 1}, best=best), state("old", "DONE", counts=None))
    lines = nnictl("experiment", "list").stdout.splitlines()
    assert "  2 of 10  0.123457  " in lines[1] and "old" in lines[2]


def test_lists_by_status_and_of_the_newest(nnictl: Run, manager: FakeManager) -> None:
    hold = {"code": "SAME_FAILURE", "sentence": "put it right", "details": ""}
    manager.add(state("abc", hold=hold), state("def"), state("xyz", "STOPPED"))
    manager.trials_of["def"] = TRIALS
    shown = {
        ("experiment", "list", "--status", "on_hold"): ["abc"],
        ("experiment", "list", "--status", "RUNNING"): ["abc", "def"],
        ("experiment", "list", "--status", "stopped"): ["xyz"],
        ("experiment", "list", "--all", "--limit", "2"): ["def", "xyz"],
        ("trial", "ls", "def", "--status", "succeeded"): ["0", "1", "4"],
        ("trial", "ls", "def", "--status", "SUCCEEDED", "--limit", "2"): ["1", "4"],
        ("trial", "ls", "def", "--limit", "100000"): [str(number) for number in range(7)],
    }
    for words, first in shown.items():
        assert [line.split()[0] for line in nnictl(*words).stdout.splitlines()[1:]] == first, words
    assert nnictl("experiment", "list", "--status", "ERROR").stdout == "No experiment has the status ERROR.\n"
    assert nnictl("trial", "ls", "def", "--status", "UNKNOWN").stdout == "No trial has the status UNKNOWN.\n"
    for words in (("--status", "nope"), ("--limit", "0"), ("--head", "2", "--limit", "3")):
        assert nnictl("trial", "ls", "def", *words).exit_code == 2


def test_trial_ls_without_trials(nnictl: Run, manager: FakeManager) -> None:
    manager.add(state("abc"))
    assert nnictl("trial", "ls").stdout == "No trials yet.\n"
    assert nnictl("trial", "ls", "--head", "1").stdout == "No trials yet.\n"
    assert nnictl("trial", "ls", "--head", "1", "--tail", "1").exit_code == 2


@pytest.mark.parametrize(
    ("trials", "counts", "said"),
    [
        (
            [trial("aaaaa", 0, finalResult="Infinity"), trial("bbbbb", 1)],
            {"SUCCEEDED": 2},
            "No successful trial has a finite number as final result; `nnictl trial ls abc` shows why.\n",
        ),
        (
            [trial("aaaaa", 0, "FAILED")],
            {"FAILED": 1},
            "No trial has succeeded yet; `nnictl trial ls abc` shows all.\n",
        ),
    ],
)
def test_head_without_comparable_results_is_explained(
    nnictl: Run, manager: FakeManager, trials: list[dict[str, Any]], counts: dict[str, int], said: str
) -> None:
    manager.add(state("abc", counts=counts))
    manager.trials_of["abc"] = trials
    assert nnictl("trial", "ls", "--head", "8").stdout == said


def test_the_last_words_say_why_a_trial_failed(nnictl: Run, manager: FakeManager) -> None:
    manager.add(state("abc"))
    failed = {"reason": "USER_CODE", "message": "exit code 1", "lastWords": "ValueError: no rate"}
    manager.trials_of["abc"] = [trial("aaaaa", 0, "FAILED", **failed)]
    assert "its command failed, exit code 1: ValueError: no rate (USER_CODE)" in nnictl("trial", "ls").stdout


@pytest.mark.parametrize("words", [["-T", "ddddd"], ["abc", "--trial_id", "dd"], ["--trial-id", "3"]])
def test_trial_kill(nnictl: Run, manager: FakeManager, words: list[str]) -> None:
    manager.add(state("abc"))
    manager.trials_of["abc"] = TRIALS
    assert nnictl("trial", "kill", *words).stdout == "Trial ddddd was asked to stop.\n"
    assert manager.calls == [("kill", "abc", "ddddd")]


def test_a_trial_that_has_ended_is_not_asked_to_end(nnictl: Run, manager: FakeManager) -> None:
    manager.add(state("abc"))
    manager.trials_of["abc"] = TRIALS
    assert nnictl("trial", "kill", "-T", "0").stdout == "Trial aaaaa has already ended: SUCCEEDED.\n"
    assert manager.calls == []


def test_trial_show_has_the_last_lines_of_stderr(nnictl: Run, manager: FakeManager) -> None:
    attempt = {
        "number": 1,
        "state": "FAILED",
        "exitCode": 127,
        "signal": None,
        "message": "",
        "place": "",
        "jobName": "job",
        "service": "local",
        "stderrTail": "\x1b[1mtrain.py: not found\n",
        "runnerExit": None,
        "interruptions": [],
        "unreachableMs": None,
        "unreachable": "",
    }
    failed = trial("ccccc", 2, "FAILED", reason="USER_CODE", message="exit code 127", attempts=[attempt])
    manager.add(state("abc"))
    manager.trials_of["abc"] = [*TRIALS[:2], failed]
    text = nnictl("trial", "show", "-T", "2").stdout
    assert "its command failed, exit code 127: a command was not found (USER_CODE)" in text
    assert "last lines of the stderr of attempt 1:\n[1mtrain.py: not found\n" in text
    assert "`nnictl log trial abc -T ccccc` shows its whole log." in text
    assert json.loads(nnictl("trial", "show", "-T", "ccc", "--json").stdout) == failed


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("9", "cannot find trial 9; `nnictl trial ls abc` shows every trial"),
        ("zz", "cannot find trial zz; "),
        ("a", "trial a is ambiguous: aaaaa, abbbb; give more of the id"),
        ("", "the trial is empty"),
    ],
)
def test_ambiguous_or_unknown_trial_is_refused(nnictl: Run, manager: FakeManager, given: str, said: str) -> None:
    manager.add(state("abc"))
    manager.trials_of["abc"] = [trial("aaaaa", 0), trial("abbbb", 1)]
    result = nnictl("trial", "kill", "-T", given)
    assert result.exit_code != 0 and f"nnictl: {said}" in result.stderr
    assert manager.calls == []


# update


@pytest.mark.parametrize(
    ("words", "fields"),
    [
        (["concurrency", "-v", "4"], {"trialConcurrency": 4}),
        (["trialnum", "--value", "100"], {"maxTrialNumber": 100}),
        (["duration", "-v", "2h"], {"maxExperimentDuration": "2h"}),
        (["duration", "-v", "90"], {"maxExperimentDuration": 90}),
    ],
)
def test_update(nnictl: Run, manager: FakeManager, words: list[str], fields: dict) -> None:
    manager.add(state("abc"))
    result = nnictl("update", words[0], "abc", *words[1:])
    ((name, value),) = fields.items()
    assert result.stdout == f"Experiment abc: {name} is now {value}.\n"
    assert manager.calls == [("change", "abc", fields)]


def test_update_labels_also_of_a_stopped_experiment(nnictl: Run, manager: FakeManager) -> None:
    manager.add(state("abc", "STOPPED"))
    result = nnictl("update", "labels", "abc", "--name", "new", "--tags", "paper, gpu,", "--notes", "", "--archive")
    assert result.stdout == "Experiment abc: experimentName, tags, notes, archived changed.\n"
    fields = {"experimentName": "new", "tags": ["paper", "gpu"], "notes": "", "archived": True}
    assert manager.calls == [("change", "abc", fields)]


@pytest.mark.parametrize(
    "text", ['{"x": {"_type": "uniform", "_value": [0, 1e-3]}}', "x: {_type: uniform, _value: [0, 1e-3]}"]
)
def test_update_searchspace(nnictl: Run, manager: FakeManager, tmp_path: Path, text: str) -> None:
    manager.add(state("abc"))
    (tmp_path / "space").write_text(text)
    result = nnictl("update", "searchspace", "-f", str(tmp_path / "space"))
    assert result.stdout == "Experiment abc: searchSpace was changed.\n"
    assert manager.calls == [("change", "abc", {"searchSpace": {"x": {"_type": "uniform", "_value": [0, 1e-3]}}})]


@pytest.mark.parametrize("whole", [False, True])
def test_update_platform(
    nnictl: Run, manager: FakeManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    monkeypatch.setenv("TOKEN", "hush")
    removed = service("local", "removed", openAttempts=2)
    manager.add(state("abc", services=[service("scripted"), removed]))
    section = {"platform": "scripted", "token": "${TOKEN}"}
    text = {"trialCommand": "x", "trainingService": [section]} if whole else section
    (tmp_path / "new.yml").write_text(json.dumps(text))
    result = nnictl("update", "platform", "-f", str(tmp_path / "new.yml"), "--now")
    assert result.stdout == (
        "Experiment abc: its trials run on scripted; local starts no new trials, 2 attempts there continue.\n"
    )
    ((verb, id_, fields),) = manager.calls
    assert (verb, id_) == ("change", "abc")
    assert fields == {
        "trainingService": [section] if whole else section,
        "now": True,
        "secrets": {"${TOKEN}": "hush"},
        "directory": str(tmp_path),
    }


def test_update_platform_without_one(nnictl: Run, manager: FakeManager, tmp_path: Path) -> None:
    manager.add(state("abc"))
    (tmp_path / "new.yml").write_text("trialCommand: x")
    result = nnictl("update", "platform", "-f", str(tmp_path / "new.yml"))
    assert (result.exit_code, "does not set trainingService" in result.stderr) == (2, True)


def test_update_with_a_bad_search_space(nnictl: Run, manager: FakeManager, tmp_path: Path) -> None:
    manager.add(state("abc"))
    (tmp_path / "space.json").write_text('{"x": 1,\n]')
    result = nnictl("update", "searchspace", "-f", str(tmp_path / "space.json"))
    assert result.exit_code == 2 and "space.json:2: searchSpaceFile: not valid JSON" in result.stderr
    assert nnictl("update", "searchspace", "-f", str(tmp_path / "nowhere")).exit_code == 2
    assert manager.calls == []


@pytest.mark.parametrize(
    ("what", "value"),
    [*[("concurrency", value) for value in ("0", "x", "-1", "1.5", "100001")], ("trialnum", "1000000000")],
)
def test_update_refuses_an_invalid_count(nnictl: Run, manager: FakeManager, what: str, value: str) -> None:
    manager.add(state("abc"))
    assert nnictl("update", what, "-v", value).exit_code == 2
    assert manager.calls == []


def test_a_problem_without_a_file_is_a_sentence(nnictl: Run, manager: FakeManager) -> None:
    manager.add(state("abc"))
    manager.refusal = ConfigInvalid([Problem(message="must be a duration", field="maxExperimentDuration")])
    result = nnictl("update", "duration", "-v", "3x")
    assert (result.exit_code, result.stderr) == (2, "nnictl: maxExperimentDuration: must be a duration\n")


# config


def test_config_check(nnictl: Run, file: Path) -> None:
    file.write_text(CONFIG + "trialConcurrency: 2\ntuner: {name: random}\ntrainingService: {platform: local}\n")
    result = nnictl("config", "check", str(file))
    assert (result.exit_code, result.stdout) == (0, f"{file}: valid; any number of trials of Random on local\n")


@pytest.mark.parametrize("command", ["python3 -u gone.py --x 1", "bash gone.sh", "sh -eu gone", "./gone"])
def test_a_trial_file_that_is_not_there_is_named(nnictl: Run, file: Path, command: str) -> None:
    tuner = "tuner: {name: random, classArgs: {optimize_mode: maximize}}\n"
    written = CONFIG.replace("python3 trial.py", command)
    file.write_text(written + f"trialConcurrency: 2\n{tuner}trainingService: {{platform: local}}\n")
    result = nnictl("config", "check", str(file))
    (name,) = (word for word in command.split() if "gone" in word)
    words = f"trialCommand: runs {name}, which is not in the code directory {file.parent}; trials fail without it"
    assert (result.exit_code, result.stderr) == (0, f"warning: {file}:2: {words}\n")


@pytest.mark.parametrize("command", ["bash -c true", "python -m trial", "cd other && bash gone.sh", "sh /opt/gone.sh"])
def test_a_command_that_names_no_file_of_the_code_is_fine(nnictl: Run, file: Path, command: str) -> None:
    tuner = "tuner: {name: random, classArgs: {optimize_mode: maximize}}\n"
    written = CONFIG.replace("python3 trial.py", command)
    file.write_text(written + f"trialConcurrency: 2\n{tuner}trainingService: {{platform: local}}\n")
    assert nnictl("config", "check", str(file)).stderr == ""


def test_config_check_prints_warnings_and_verdict(nnictl: Run, file: Path) -> None:
    tuner = "tuner: {name: random, classArgs: {optimize_mode: maximize}}\n"
    file.write_text(CONFIG + f"trialConcurrency: 2\n{tuner}trainingService: {{platform: local}}\n")
    file.write_text(file.read_text() + "deprecated: {}\n")
    result = nnictl("config", "check", str(file))
    line = len(file.read_text().splitlines())
    warning = f"warning: {file}:{line}: deprecated: has no effect; NNI does not use it either\n"
    assert (result.exit_code, result.stderr) == (0, warning)
    file.write_text(file.read_text().replace("trialConcurrency: 2", "trialConcurrency: 0"))
    result = nnictl("config", "check", str(file))
    assert result.exit_code == 2 and result.stderr.endswith(warning) and "trialConcurrency: must be" in result.stderr


def test_create_and_status_say_the_warnings(nnictl: Run, manager: FakeManager, file: Path) -> None:
    warnings = [{"code": "TRIAL_PORT_MOVED", "message": "the trial listener is elsewhere"}]
    manager.add(state("abc", warnings=warnings))
    assert "warnings  the trial listener is elsewhere\n" in nnictl("experiment", "status", "abc").stdout
    assert json.loads(nnictl("experiment", "status", "abc", "--json").stdout)["warnings"] == warnings
    assert nnictl("resume", "abc").stderr == "warning: the trial listener is elsewhere\n"


def test_config_check_says_what_create_would_refuse(nnictl: Run, file: Path) -> None:
    """The platform adapter's own checks run without a daemon, too."""
    file.write_text(CONFIG + "trialConcurrency: 2\ntuner: {name: random}\ntrainingService: {platform: local}\n")
    assert nnictl("config", "check", str(file)).exit_code == 0
    several = 'scripted, launch: external, trialCommand: "a\\nb"}'
    file.write_text(file.read_text().replace("local}", several))
    result = nnictl("config", "check", str(file))
    assert result.exit_code == 2 and "trialCommand: has several lines" in result.stderr


def test_config_check_lists_every_problem(nnictl: Run, file: Path) -> None:
    file.write_text(CONFIG + "trialConcurrency: 0\nmaxTrialNumber: x\n")
    result = nnictl("config", "check", str(file))
    lines = result.stderr.splitlines()
    assert result.exit_code == 2
    assert f"{file}:3: trialConcurrency: must be from 1 to 100000, not 0" in lines
    assert f"{file}:4: maxTrialNumber: must be a whole number, not text" in lines


# failures


def test_version(nnictl: Run) -> None:
    assert nnictl("--version").stdout == f"{__version__}\n"


def test_a_failure_is_one_sentence(nnictl: Run, manager: FakeManager) -> None:
    manager.add(state("abc", "STOPPED"))
    manager.refusal = Conflict("experiment abc is at work")
    result = nnictl("experiment", "delete", "abc", "--yes")
    assert (result.exit_code, result.stderr) == (1, "nnictl: experiment abc is at work\n")


@pytest.mark.parametrize("words", [["nope"], ["create"], ["trial", "kill"], ["experiment", "list", "--nope"]])
def test_bad_usage_is_one_line_that_names_the_help(nnictl: Run, words: list[str]) -> None:
    result = nnictl(*words)
    assert result.exit_code == 2
    assert result.stderr.startswith("nnictl: ") and result.stderr.endswith("--help`\n")
    assert len(result.stderr.splitlines()) == 1


def test_a_fault_of_ours_names_its_place(nnictl: Run, manager: FakeManager) -> None:
    manager.add(state("abc"))
    manager.trials_of["abc"] = [trial("aaaaa", 0, "RUNNING")]
    manager.refusal = KeyError("x")
    result = nnictl("trial", "kill", "-T", "aaaaa")
    assert result.exit_code == 1
    assert result.stderr.startswith("nnictl: KeyError('x') at fake_manager.py:") and "\n" not in result.stderr[:-1]


def test_no_command_shows_the_help(nnictl: Run) -> None:
    result = nnictl()
    assert result.exit_code == 2 and "Commands:" in result.stderr


def test_an_interrupt_ends_with_130(nnictl: Run, manager: FakeManager) -> None:
    manager.add(state("abc"))
    manager.trials_of["abc"] = [trial("aaaaa", 0, "RUNNING")]
    manager.refusal = KeyboardInterrupt()
    assert nnictl("trial", "kill", "-T", "aaaaa").exit_code == 130


def test_trial_show_says_since_when_an_attempt_is_out_of_reach(nnictl: Run, manager: FakeManager) -> None:
    attempt = {
        "number": 1,
        "state": "RUNNING",
        "exitCode": None,
        "signal": None,
        "message": "",
        "place": "",
        "jobName": "job",
        "service": "remote",
        "stderrTail": "",
        "runnerExit": None,
        "interruptions": [],
        "unreachableMs": 1_000,
        "unreachable": "hostA unreachable since 12:00 (timeout)",
    }
    manager.add(state("abc"))
    manager.trials_of["abc"] = [trial("ccccc", 0, "RUNNING", attempts=[attempt])]
    text = " ".join(nnictl("trial", "show", "-T", "0").stdout.split())
    assert "unreachable since" in text and "hostA unreachable since 12:00 (timeout)" in text
