"""Layout of tables at several terminal widths, and on a pipe."""

from __future__ import annotations

from collections.abc import Callable

import click
import pytest
from click.testing import Result
from fake_manager import FakeManager, state, trial

from nni_manager.cli import output
from nni_manager.cli.main import nnictl as group
from nni_manager.cli.output import Column, facts, layout, wrapped
from nni_manager.cli.trial import commands

pytestmark = pytest.mark.unit

WHY = "no machine has 4 free GPUs of 16 GB; `nnictl plan -c exp.yml` says which ones there are"
COLUMNS = [
    Column(header="ID"),
    Column(header="NAME", least=4),
    Column(header="PORT", dispensable=1),
    Column(header="WHEN", dispensable=2),
    Column(header="WHY", is_note=True),
]
ROW = ("abc", "a long name", "8080", "2026-11-20", "no GPU")


def test_a_pipe_has_every_column() -> None:
    rows = [("abc", "", "8080", "", WHY)]
    lines = layout(COLUMNS, rows, None).text.splitlines()
    assert lines[0].split() == ["ID", "NAME", "PORT", "WHEN", "WHY"] and lines[1].endswith(WHY)


def test_fitting_table_is_unchanged() -> None:
    assert layout(COLUMNS, [ROW], 80).text.splitlines()[1] == "abc  a long name  8080  2026-11-20  no GPU"


def test_columns_without_anything_are_left_out_on_a_terminal() -> None:
    assert layout(COLUMNS, [("abc", "", "8080", "", "")], 80).text.splitlines() == ["ID   PORT", "abc  8080"]


def test_the_note_goes_below_then_names_are_cut_then_columns_go() -> None:
    assert layout(COLUMNS, [ROW], 38).text.splitlines()[1:] == ["abc  a long name  8080  2026-11-20", "    no GPU"]
    assert layout(COLUMNS, [ROW], 30).text.splitlines()[1:] == ["abc  a long…  8080  2026-11-20", "    no GPU"]
    narrow = layout(COLUMNS, [ROW], 17)
    assert narrow.text.splitlines()[1] == "abc  a lon…  8080" and narrow.left_out == ("WHEN",)
    assert layout(COLUMNS, [ROW], 5).left_out == ("PORT", "WHEN"), "the other columns are not cut"


def test_notes_are_wrapped_and_have_so_many_lines() -> None:
    columns = [Column(header="ID"), Column(header="WHY", is_note=True, note_lines=2)]
    assert layout(columns, [("abc", WHY * 3)], 60).text.splitlines()[1:] == [
        "abc",
        "    no machine has 4 free GPUs of 16 GB;",
        "    `nnictl plan -c exp.yml` says which ones there areno …",
    ]


def test_commands_and_paths_stay_in_one_piece() -> None:
    assert wrapped("see `nnictl log trial abc -T xyz` for it", 30) == ["see", "`nnictl log trial abc -T xyz`", "for it"]
    assert facts({"id": "a", "folder": "/a/very/long/path/that/has/no/end"}, 20).splitlines() == [
        "id      a",
        "folder  /a/very/long/path/that/has/no/end",
    ]


TRIALS = [
    trial("aaaaa", 0, value=0.123456789, parameters={"learning_rate": 0.0123456789, "units": 128, "kind": "relu"}),
    trial("bbbbb", 1, "FAILED", reason="USER_CODE", message="exit code 1", parameters={"learning_rate": 1e-7}),
]


def test_a_column_for_each_parameter() -> None:
    wide = commands.table_text(TRIALS, None).splitlines()
    assert wide[0].split() == ["NO", "ID", "STATUS", "RESULT", "TIME", "learning_rate", "units", "kind", "WHERE", "WHY"]
    cells = ["0", "aaaaa", "SUCCEEDED", "0.123457", "1", "min", "5", "s", "0.0123457", "128", "relu", "local"]
    assert wide[1].split() == cells
    narrow = commands.table_text(TRIALS, 66).splitlines()
    assert max(map(len, narrow)) <= 66 and "0.01235" in narrow[1] and "1e-07" in narrow[2]
    assert narrow[3] == "    its command failed, exit code 1 (USER_CODE)"
    assert "WHERE" not in narrow[0], "all ran in the same place"


def test_parameters_for_which_there_is_no_room_are_named() -> None:
    many = [trial("aaaaa", 0, parameters={f"parameter_{number}": 0.123456789 for number in range(9)})]
    lines = commands.table_text(many, 80).splitlines()
    assert max(map(len, lines[:-1])) <= 80 and "parameter_8" in lines[-1] and "--json" in lines[-1]


def test_nested_choices_and_odd_parameters() -> None:
    nested = {"optimizer": {"_name": "Adam", "lr": 0.5, "amsgrad": True}, "layers": [1, 2], "none": None}
    lines = commands.table_text([trial("aaaaa", 0, parameters=nested), trial("bbbbb", 1, parameters=[1])], None)
    header, first, second = (line.split("  ") for line in lines.splitlines())
    shown = {text.strip() for text in header}
    assert {"optimizer", "optimizer.lr", "optimizer.amsgrad", "layers", "none", "PARAMETERS"} <= shown
    assert {"Adam", "0.5", "true", "[1, 2]", "null"} <= {text.strip() for text in first}
    assert "[1]" in second


# Colours


@pytest.fixture
def on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)


def test_colours_are_for_terminals_that_want_them(on_a_terminal: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert output.coloured_status("FAILED  ") == click.style("FAILED  ", fg="red")
    assert output.coloured_status("DONE: the limit") == click.style("DONE: the limit", fg="green")
    assert output.coloured_status("WAITING") == "WAITING" and output.heading("ID") == click.style("ID", bold=True)
    for name, value in (("NO_COLOR", "1"), ("TERM", "dumb")):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            assert output.coloured_status("FAILED") == "FAILED" and output.heading("ID") == "ID"


def test_a_pipe_has_no_colours(nnictl: Callable[..., Result], manager: FakeManager) -> None:
    manager.add(state("abc", "DONE"))
    for words in (("experiment", "list"), ("experiment", "show"), ("experiment", "status")):
        assert "\x1b" not in nnictl(*words).stdout


def test_help_is_as_wide_as_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    widest = {}
    for columns in ("80", "150"):
        monkeypatch.setenv("COLUMNS", columns)
        with click.Context(group, **group.context_settings) as root:
            plan = group.get_command(root, "plan")
            assert plan is not None
            shown = click.Context(plan, parent=root).get_help()
        widest[columns] = max(map(len, shown.splitlines()))
    assert widest["80"] <= 80 < widest["150"] <= 150
