"""nnictl experiment export and import: files in the format of NNI's tools."""

from __future__ import annotations

import csv
import json
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import Result
from fake_manager import FakeManager, state, trial

pytestmark = pytest.mark.unit

Run = Callable[..., Result]

FACTS = ["sequenceId", "status", "startedMs", "endedMs"]


@pytest.fixture
def seeded(manager: FakeManager) -> FakeManager:
    manager.add(state("abc"))
    manager.trials_of["abc"] = [
        trial("aaaaa", 0, parameters={"x": 1, "layer": {"_name": "conv"}}, finalResult="0.5", attempt=2),
        trial("bbbbb", 1, "FAILED", finalResult="9"),
        trial("ccccc", 2, finalResult=None),
        trial("ddddd", 3, parameters={"x": 2, "lr": 0.1}, finalResult='{"default": 0.25, "loss": 2}'),
    ]
    manager.metrics_of["abc"] = [
        {"id": 1, "trialId": "aaaaa", "attempt": 1, "type": "PERIODICAL", "result": "0.9"},
        {"id": 2, "trialId": "aaaaa", "attempt": 2, "type": "PERIODICAL", "result": "0.1"},
        {"id": 3, "trialId": "ddddd", "attempt": 1, "type": "PERIODICAL", "result": '{"default": 3}'},
        {"id": 5, "trialId": "aaaaa", "attempt": 2, "type": "PERIODICAL", "result": "0.2"},
        {"id": 6, "trialId": "aaaaa", "attempt": 2, "type": "FINAL", "result": "0.5"},
    ]
    return manager


def export(nnictl: Run, path: Path, *words: str) -> Result:
    return nnictl("experiment", "export", "--filename", str(path), *words)


def test_json_is_nnis_export_and_has_every_trial(nnictl: Run, seeded: FakeManager, tmp_path: Path) -> None:
    result = export(nnictl, tmp_path / "out.json", "abc", "-t", "json")
    assert result.stdout == f"Experiment abc: 4 trials are in {tmp_path / 'out.json'}.\n"
    times = {"startedMs": 1_000, "endedMs": 66_000}
    assert json.loads((tmp_path / "out.json").read_text()) == [
        {
            "parameter": {"x": 1, "layer": {"_name": "conv"}},
            "value": 0.5,
            "trialJobId": "aaaaa",
            "sequenceId": 0,
            "status": "SUCCEEDED",
            **times,
        },
        {"parameter": {"x": 1}, "value": 9, "trialJobId": "bbbbb", "sequenceId": 1, "status": "FAILED", **times},
        {"parameter": {"x": 2}, "value": None, "trialJobId": "ccccc", "sequenceId": 2, "status": "SUCCEEDED", **times},
        {
            "parameter": {"x": 2, "lr": 0.1},
            "value": {"default": 0.25, "loss": 2},
            "trialJobId": "ddddd",
            "sequenceId": 3,
            "status": "SUCCEEDED",
            **times,
        },
    ]


def test_nan_and_infinity_stay_text(nnictl: Run, manager: FakeManager, tmp_path: Path) -> None:
    manager.add(state("abc"))
    texts = ["-Infinity", '{"default": NaN}', '"text"', "1e3"]
    manager.trials_of["abc"] = [trial(f"tria{n}", n, finalResult=text) for n, text in enumerate(texts)]
    assert export(nnictl, tmp_path / "out.json").exit_code == 0
    found = json.loads((tmp_path / "out.json").read_text(), parse_constant=pytest.fail)
    assert [record["value"] for record in found] == ["-Infinity", '{"default": NaN}', '"text"', 1000.0]


def test_import_leaves_out_trials_without_result(nnictl: Run, seeded: FakeManager, tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    assert export(nnictl, path, "abc").exit_code == 0
    result = nnictl("experiment", "import", "abc", "-f", str(path))
    assert result.stdout == (
        "Experiment abc: the tuner gets 2 results. Left out, without success or a finite result: 2.\n"
    )
    (told,) = [call[2] for call in seeded.calls if call[0] == "import"]
    assert told == [
        {"parameter": {"x": 1, "layer": {"_name": "conv"}}, "value": 0.5, "trialJobId": "aaaaa"},
        {"parameter": {"x": 2, "lr": 0.1}, "value": {"default": 0.25, "loss": 2}, "trialJobId": "ddddd"},
    ]
    path.write_text(json.dumps([{"parameter": {"x": 1}, "value": None, "status": "FAILED"}]))
    assert "not one of its 1 trials succeeded" in nnictl("experiment", "import", "abc", "-f", str(path)).stderr


def test_json_with_intermediates_of_the_attempt_that_counts(nnictl: Run, seeded: FakeManager, tmp_path: Path) -> None:
    assert export(nnictl, tmp_path / "out.json", "-t", "json", "-i").exit_code == 0
    records = json.loads((tmp_path / "out.json").read_text())
    assert [record["intermediate"] for record in records] == [[0.1, 0.2, 0.5], [], [], [{"default": 3}]]


def test_csv(nnictl: Run, seeded: FakeManager, tmp_path: Path) -> None:
    assert export(nnictl, tmp_path / "out.csv", "--intermediate").exit_code == 0, "by the ending of its name"
    with (tmp_path / "out.csv").open(newline="") as file:
        reader = csv.DictReader(file)
        rows = list(reader)
    assert reader.fieldnames == ["x", "layer", "lr", "reward", "default", "loss", "intermediate", "trialJobId", *FACTS]
    assert rows[0] == {
        "x": "1",
        "layer": '{"_name": "conv"}',
        "lr": "",
        "reward": "0.5",
        "default": "",
        "loss": "",
        "intermediate": "[0.1, 0.2, 0.5]",
        "trialJobId": "aaaaa",
        "sequenceId": "0",
        "status": "SUCCEEDED",
        "startedMs": "1000",
        "endedMs": "66000",
    }
    assert [row["status"] for row in rows] == ["SUCCEEDED", "FAILED", "SUCCEEDED", "SUCCEEDED"]
    assert (rows[3]["default"], rows[3]["loss"], rows[3]["intermediate"]) == ("0.25", "2", '[{"default": 3}]')


def test_without_results(nnictl: Run, manager: FakeManager, tmp_path: Path) -> None:
    manager.add(state("abc"))
    for kind, text in (("json", "[]\n"), ("csv", f"reward,trialJobId,{','.join(FACTS)}\r\n")):
        assert "0 trials" in export(nnictl, tmp_path / "out", "-t", kind).stdout
        assert (tmp_path / "out").read_bytes().decode() == text


def test_a_trial_that_the_pages_show_twice_is_exported_once(nnictl: Run, manager: FakeManager, tmp_path: Path) -> None:
    manager.add(state("abc"))
    manager.trials_of["abc"] = [trial("aaaaa", 0, value=1.0), trial("aaaaa", 0, value=1.0)]
    assert "1 trials" in export(nnictl, tmp_path / "out", "-t", "json").stdout


def test_a_parameter_of_the_name_of_a_column(nnictl: Run, manager: FakeManager, tmp_path: Path) -> None:
    manager.add(state("abc"))
    manager.trials_of["abc"] = [trial("aaaaa", 0, value=2.0, parameters={"trialJobId": 7, "reward": 1})]
    assert export(nnictl, tmp_path / "out", "-t", "csv").exit_code == 0
    assert (tmp_path / "out").read_text().split() == [
        f"reward,trialJobId,{','.join(FACTS)}",
        "2.0,aaaaa,0,SUCCEEDED,1000,66000",
    ]


def test_a_name_that_does_not_say_its_form(nnictl: Run, seeded: FakeManager, tmp_path: Path) -> None:
    result = export(nnictl, tmp_path / "out.txt")
    assert result.exit_code == 2 and list(tmp_path.iterdir()) == []
    assert "--type json or --type csv" in result.stderr


def test_a_file_that_cannot_be_written(nnictl: Run, seeded: FakeManager, tmp_path: Path) -> None:
    result = export(nnictl, tmp_path / "nowhere" / "out", "-t", "csv")
    assert result.exit_code == 1
    assert "--filename" in result.stderr and "No such file or directory" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_file_stays_as_it_is_when_the_daemon_goes_away(nnictl: Run, seeded: FakeManager, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("before")
    del seeded.trials_of["abc"][0]["finalResult"]
    assert export(nnictl, tmp_path / "out", "-t", "json").exit_code == 1
    assert (tmp_path / "out").read_text() == "before" and len(list(tmp_path.iterdir())) == 1


def test_link_is_kept_and_target_keeps_mode(nnictl: Run, seeded: FakeManager, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    target, link = tmp_path / "real" / "out.json", tmp_path / "out"
    target.write_text("before")
    target.chmod(0o600)
    link.symlink_to("real/out.json")
    assert export(nnictl, link, "-t", "json").exit_code == 0
    assert link.is_symlink() and len(json.loads(target.read_text())) == 4
    assert stat.S_IMODE(target.stat().st_mode) == 0o600 and len(list(target.parent.iterdir())) == 1


def test_a_link_to_nothing_yet(nnictl: Run, seeded: FakeManager, tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to("new.json")
    assert export(nnictl, tmp_path / "out", "-t", "json").exit_code == 0
    assert (tmp_path / "out").is_symlink() and len(json.loads((tmp_path / "new.json").read_text())) == 4


@pytest.mark.parametrize("name", ["pipe", "link"])
def test_a_pipe_is_written_into(nnictl: Run, seeded: FakeManager, tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    end = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert export(nnictl, tmp_path / name, "-t", "json").exit_code == 0
        assert len(json.loads(os.read(end, 65536))) == 4
    finally:
        os.close(end)
    assert (tmp_path / "pipe").is_fifo() and (tmp_path / "link").is_symlink()


@contextmanager
def standard(descriptor: int, path: Path) -> Iterator[None]:
    """A standard stream of this process leads to the end of a file, as after `>>`."""
    with path.open("a") as file, open(os.dup(descriptor), "w") as before:
        os.dup2(file.fileno(), descriptor)
        try:
            yield
        finally:
            os.dup2(before.fileno(), descriptor)


@pytest.mark.parametrize(("descriptor", "name"), [(1, "-"), (1, "/dev/stdout"), (1, "/dev/fd/1"), (2, "/dev/stderr")])
def test_a_standard_stream_is_written_into(
    nnictl: Run, seeded: FakeManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, descriptor: int, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "out"
    out.write_text("kept\n")
    file = out.stat().st_ino
    with standard(descriptor, out):
        result = export(nnictl, Path(name), "-t", "json")
    kept, _, results = out.read_text().partition("\n")
    assert result.exit_code == 0 and kept == "kept" and len(json.loads(results)) == 4
    told = f"Experiment abc: 4 trials are in {name}.\n"
    assert (result.stderr if descriptor == 1 else result.stdout).startswith(told)
    if descriptor == 1:
        assert "warning: trials that succeeded without a final result: 1; trial ccccc: " in result.stderr
    assert out.stat().st_ino == file and [each.name for each in tmp_path.iterdir()] == ["out"]


def test_a_standard_stream_that_is_closed(nnictl: Run, seeded: FakeManager, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.__stdout__", None)
    result = export(nnictl, Path("-"), "-t", "json")
    assert result.exit_code == 1 and "--filename - cannot be written (Bad file descriptor)" in result.stderr


def test_half_a_character_becomes_an_escape(nnictl: Run, manager: FakeManager, tmp_path: Path) -> None:
    manager.add(state("abc"))
    manager.trials_of["abc"] = [trial("aaaaa", 0, value=1.0, parameters={"x\ud800": "\ud800"})]
    assert export(nnictl, tmp_path / "out.json", "-t", "json").exit_code == 0
    assert json.loads((tmp_path / "out.json").read_text())[0]["parameter"] == {"x\ud800": "\ud800"}
    assert export(nnictl, tmp_path / "out.csv", "-t", "csv").exit_code == 0
    assert (tmp_path / "out.csv").read_text().split() == [
        rf"x\ud800,reward,trialJobId,{','.join(FACTS)}",
        r"\ud800,1.0,aaaaa,0,SUCCEEDED,1000,66000",
    ]


@pytest.mark.parametrize("words", [["-t", "xml"], []])
def test_the_form_is_json_or_csv(nnictl: Run, seeded: FakeManager, tmp_path: Path, words: list[str]) -> None:
    assert export(nnictl, tmp_path / "out", *words).exit_code == 2


# import


def send(nnictl: Run, tmp_path: Path, text: str) -> Result:
    (tmp_path / "in.json").write_text(text)
    return nnictl("experiment", "import", "--filename", str(tmp_path / "in.json"))


def test_export_can_be_imported(nnictl: Run, seeded: FakeManager, tmp_path: Path) -> None:
    export(nnictl, tmp_path / "out.json", "-t", "json", "-i")
    result = send(nnictl, tmp_path, (tmp_path / "out.json").read_text())
    assert result.stdout.startswith("Experiment abc: the tuner gets 2 results.")
    assert seeded.calls == [
        (
            "import",
            "abc",
            [
                {
                    "parameter": {"x": 1, "layer": {"_name": "conv"}},
                    "value": 0.5,
                    "trialJobId": "aaaaa",
                    "intermediate": [0.1, 0.2, 0.5],
                },
                {
                    "parameter": {"x": 2, "lr": 0.1},
                    "value": {"default": 0.25, "loss": 2},
                    "trialJobId": "ddddd",
                    "intermediate": [{"default": 3}],
                },
            ],
        )
    ]


def test_results_that_are_not_finite_are_left_out(nnictl: Run, manager: FakeManager, tmp_path: Path) -> None:
    manager.add(state("abc"))
    values = ["-Infinity", '{"default": NaN}', '"text"', "1000.0"]
    result = send(nnictl, tmp_path, json.dumps([{"parameter": {}, "value": value} for value in values]))
    assert result.stdout.endswith("gets 2 results. Left out, without success or a finite result: 2.\n")
    assert manager.calls == [
        ("import", "abc", [{"parameter": {}, "value": '"text"'}, {"parameter": {}, "value": 1000.0}])
    ]


def test_parameters_outside_the_search_space_are_named(nnictl: Run, manager: FakeManager, tmp_path: Path) -> None:
    manager.add(state("abc", config={"searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}}}))
    result = send(nnictl, tmp_path, '[{"parameter": {"x": 0.5, "y": 1}, "value": 1}]')
    assert (result.exit_code, result.stderr) == (0, "warning: the search space has no y; it has x\n")


def test_large_import_is_sent_in_parts(nnictl: Run, manager: FakeManager, tmp_path: Path) -> None:
    manager.add(state("abc"))
    entries = [{"parameter": {"text": "x" * 1_000_000}, "value": number} for number in range(9)]
    assert send(nnictl, tmp_path, json.dumps(entries)).exit_code == 0
    assert [entry for _, _, batch in manager.calls for entry in batch] == entries
    assert len(manager.calls) == 3


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("[", "not JSON"),
        ("{}", "must hold a list"),
        ("[]", "must hold a list"),
        ('[{"parameter": 1, "value": 1}]', "entry 0"),
        ('[{"parameter": {}, "value": 1}, {"parameter": {}}]', "entry 1"),
        ('[{"parameter": {}, "value": "high"}]', "entry 0: value is text"),
        ('[{"parameter": {}, "value": Infinity}]', "not one of its 1 trials"),
        ('[{"parameter": {}, "value": NaN}, {"parameter": {"x": NaN}, "value": 1}]', "entry 1: NaN"),
    ],
)
def test_invalid_imports(nnictl: Run, manager: FakeManager, tmp_path: Path, text: str, word: str) -> None:
    manager.add(state("abc"))
    result = send(nnictl, tmp_path, text)
    assert result.exit_code == 2 and word in result.stderr and len(result.stderr.splitlines()) == 1
    assert manager.calls == []


def test_no_file_to_import(nnictl: Run, manager: FakeManager) -> None:
    result = nnictl("experiment", "import", "-f", "/nowhere.json")
    assert result.exit_code == 2 and "/nowhere.json cannot be read (No such file or directory)" in result.stderr
