"""Tables, facts and the formats of single values."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nni_manager.cli import command_group
from nni_manager.cli.output import facts
from nni_manager.cli.output import plain_table as table
from nni_manager.client.formats import cut, number

pytestmark = pytest.mark.unit


def test_table_aligns_columns() -> None:
    assert table(("ID", "NAME", "X"), [("a", "long name", ""), ("bcd", "", "1")]) == (
        "ID   NAME       X\na    long name\nbcd             1"
    )


def test_a_cell_never_breaks_its_line() -> None:
    assert table(("WHY",), [("two\nlines",)]) == "WHY\ntwo lines"
    assert table(("WHY",), [("\x1b[2Jthree\r\n\tmore\x85lines\n",)]) == "WHY\n[2Jthree more lines"


def test_blanks_inside_a_value_stay() -> None:
    assert table(("NAME",), [("a  b",)]) == "NAME\na  b"
    assert facts({"name": "a  b\u00a0c"}) == "name  a  b\u00a0c"


def test_facts_omit_missing_values() -> None:
    assert facts({"id": "a", "name": "", "status": "DONE"}) == "id      a\nstatus  DONE"
    assert facts({}) == ""


@pytest.mark.parametrize(("text", "columns", "expected"), [("abc", 3, "abc"), ("abcd", 3, "ab…"), ("ab", 1, "…")])
def test_cut(text: str, columns: int, expected: str) -> None:
    assert cut(text, columns) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, ""),
        (3, "3"),
        (0.1 + 0.2, "0.3"),
        (1e-9, "1e-09"),
        (float("NaN"), "NaN"),
        (float("Infinity"), "Infinity"),
        (10**20, "100000000000000000000"),
        ({"default": 1}, '{"default": 1}'),
        (True, "true"),
    ],
)
def test_number(value: object, expected: str) -> None:
    assert number(value) == expected


def test_an_error_in_a_folder_that_was_removed_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder := tmp_path / "gone").mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    with pytest.raises(OSError) as raised:
        os.path.abspath("experiment.yml")
    assert command_group._sentence(raised.value) == "the current folder, which was removed: No such file or directory"
