"""Text → values with lines, and the texts that must be refused."""

from __future__ import annotations

import contextvars
import json
import math
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from nni_manager.config.reading import document, yaml_reader
from nni_manager.config.reading.document import MAX_DEPTH, Patience, Unreadable
from nni_manager.config.reading.source import LARGE_CHARACTERS
from nni_manager.config.reading.yaml_reader import parse, parse_here

pytestmark = pytest.mark.unit

SCALARS: list[tuple[str, Any]] = [
    ("1e-3", 0.001),
    ("1E5", 100000.0),
    ("-.5", -0.5),
    ("1.", 1.0),
    ("+7", 7),
    ("010", 10),
    ("0x1F", 31),
    ("0o17", 15),
    ("true", True),
    ("False", False),
    *((word, True) for word in ("yes", "Yes", "YES", "on", "On", "ON", "True")),
    *((word, False) for word in ("no", "No", "NO", "off", "Off", "OFF", "FALSE")),
    ("n", "n"),
    ("yEs", "yEs"),
    ("'on'", "on"),
    ("!!str off", "off"),
    ("|\n  no\n", "no\n"),
    ("null", None),
    ("~", None),
    ("", None),
    ("1_000", "1_000"),
    ("1:30", "1:30"),
    ("2024-01-01", "2024-01-01"),
    ("'1'", "1"),
    ('"true"', "true"),
    ("1.2.3", "1.2.3"),
    ("-", "-"),
    (".inf", math.inf),
    ("-.inf", -math.inf),
    ("!!str 5", "5"),
    ('!!int "5"', 5),
    ("|\n  two\n  lines\n", "two\nlines\n"),
    ("1e", "1e"),
    ("e5", "e5"),
]


@pytest.mark.parametrize(("text", "value"), SCALARS)
def test_scalars_have_their_types(text: str, value: object) -> None:
    found = parse(f"a: {text}").root.value["a"] if text != "-" else parse('a: "-"').root.value["a"]
    assert (found, type(found)) == (value, type(value))


def test_yaml_nan_is_a_float() -> None:
    assert math.isnan(parse("a: .nan").root.value["a"])


def test_keys_are_text_and_values_truth_values() -> None:
    text = "on: {_type: choice, _value: [yes, no]}\nNo: off\n"
    assert parse(text).root.value == {"on": {"_type": "choice", "_value": [True, False]}, "No": False}


def test_keys_are_text_and_lines_are_known() -> None:
    document = parse("# bees\n1: x\ntrue:\n  deep:\n    - a\n    - b\n")
    assert document.root.value == {"1": "x", "true": {"deep": ["a", "b"]}}
    assert document.locate(("true", "deep", 1)) == (("true", "deep", 1), 6)
    assert document.locate(("TRUE", "d_eep", "missing", "below")) == (("true", "deep", "missing", "below"), 4)


def test_an_alias_has_its_own_line_and_the_value_of_its_anchor() -> None:
    document = parse("a: &bee {x: 1}\nb: *bee\nc:\n  <<: *bee\n  y: 2\n  x: 3\n")
    assert document.root.value == {"a": {"x": 1}, "b": {"x": 1}, "c": {"y": 2, "x": 3}}
    assert document.locate(("b",))[1] == 2
    assert document.locate(("c", "x"))[1] == 6


def test_several_mappings_are_merged_and_a_quoted_mark_is_a_key() -> None:
    text = "a: &a {x: 1}\nb: &b {x: 2, y: 3}\nc: {<<: [*a, *b]}\nd: {'<<': 5}\n"
    assert parse(text).root.value["c"] == {"x": 1, "y": 3}
    assert parse(text).root.value["d"] == {"<<": 5}


def test_duplicate_keys_are_faults() -> None:
    assert parse("a: 1\nb: 2\na: 3\n").faults == [(("a",), 3, "given twice, first in line 1; keep one")]


def test_ellipsis_is_a_fault_and_the_rest_is_read() -> None:
    document = parse("a: 1\n...\nb: 2\n...\n")
    assert document.root.value == {"a": 1, "b": 2}
    assert document.faults == [(("...",), 2, "'...' stands for omitted fields; replace it by the real fields")]
    assert parse("a: 1\n...\n").faults == [], "the end of a text"
    assert parse("a: |\n  x\n  ...\n  y\n").root.value == {"a": "x\n...\ny\n"}


def test_a_text_of_three_dots_is_read_once() -> None:
    """Each line was compared with all behind it: 400 KB took half a minute."""
    before_s = time.process_time()
    document = parse_here("a: 1\n" + "...\n" * 100_000 + "b: 2\n")
    assert time.process_time() - before_s < 5
    assert document.root.value == {"a": 1, "b": 2} and [line for _, line, _ in document.faults] == [2]


REFUSED = [
    ("a: 1\nb: *hunter2", 2, "its anchor is missing"),
    ("a: &x [*x]", 1, "its anchor is missing"),
    ("? [a]\n: 1", 1, "a key must be text"),
    ("a: 1\n---\nb: 2\n", 2, "ends the config"),
    ("a: b: c", 1, "not valid YAML"),
    ("a: 1\n\tb: 2", 2, "not valid YAML"),
    ("a: [1, 2", 1, "not valid YAML"),
    ("a: \x00", 0, "is not allowed in text"),
    ("a: \ud800", 0, "is not allowed in text"),
    ('{\n"a": "\\ud83d\\ude00",\n"b": "\\ud83d"}', 3, "not valid YAML"),
    ('{\n"b": "\\ude00\\ud83d"}', 2, "not valid YAML"),
    ("<<: 5", 1, "takes an alias of a mapping"),
    ("a: " + "[" * 5000 + "]" * 5000, 1, "nested more than"),
]


@pytest.mark.parametrize(("text", "line", "words"), REFUSED, ids=range(len(REFUSED)))
def test_unusable_texts(text: str, line: int, words: str) -> None:
    with pytest.raises(Unreadable) as refused:
        parse(text)
    assert words in refused.value.message
    assert refused.value.line == line
    assert "hunter2" not in refused.value.message


def test_depth_is_bounded_and_its_bound_is_usable() -> None:
    assert parse("[" * MAX_DEPTH + "]" * MAX_DEPTH).root.size == MAX_DEPTH
    with pytest.raises(Unreadable, match="nested more than"):
        parse("[" * (MAX_DEPTH + 2) + "]" * (MAX_DEPTH + 2))


def test_an_alias_bomb_is_refused_before_it_expands() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    with pytest.raises(Unreadable, match="values, aliases expanded"):
        parse("\n".join(lines))


@pytest.mark.parametrize("text", ["a: !secret hunter2", "a: !!python/object/apply:os.system [ls]", "a: !bee {}"])
def test_tags_construct_nothing(text: str) -> None:
    [(path, line, message)] = parse(text).faults
    assert (path, line) == (("a",), 1)
    assert "hunter2" not in message


def test_json_with_tabs_and_escaped_slashes() -> None:
    assert parse('{\n\t"a":"\\/x",\n\t"b":\t[1e-3,true,null]}').root.value == {"a": "/x", "b": [0.001, True, None]}


EMOJI = ["\U0001f600", "\U0010ffff \U00010000\U0001f600", r"\ud83d\ude00", "\\\U0001f600", "é\U0001f600"]


@pytest.mark.parametrize("text", EMOJI)
def test_json_escapes_characters_in_halves(text: str) -> None:
    value = {text: [text]}
    assert parse(json.dumps(value)).root.value == value
    assert parse(r'["\uD83D\uDE00"]').root.value == ["\U0001f600"]


# ------------------------------------------------------------------------------------------------ work


def test_merged_values_count_towards_the_limit_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of many small mappings may merge a large one: the work is refused, not only what comes of it."""
    monkeypatch.setattr(yaml_reader, "MAX_VALUES", 5_000)
    large = "a: &a {" + ", ".join(f"k{number}: 1" for number in range(1_000)) + "}\n"
    with pytest.raises(Unreadable, match="holds more than") as refused:
        parse(large + "b:\n" + "- {<<: *a}\n" * 1_000)
    assert refused.value.line == 6, "the fourth time"


def test_overridden_merged_values_count_towards_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml_reader, "MAX_VALUES", 5_000)
    large = "a: &a {" + ", ".join(f"k{number}: 1" for number in range(1_000)) + "}\n"
    with pytest.raises(Unreadable, match="holds more than"):
        parse(large + "b:\n" + "  <<: *a\n" * 5)


def test_many_directives_are_refused_quickly() -> None:
    parse("%TAG !a! tag:a\n---\na: 1")
    with pytest.raises(Unreadable, match="lines begin with %"):
        parse("".join(f"%TAG !{number}! tag:a\n" for number in range(200)) + "---\na: 1")


# ------------------------------------------------------------------------------------------------ large texts

PADDING = "#" * LARGE_CHARACTERS + "\n"


def test_a_large_text_is_read_as_a_small_one_is() -> None:
    text = (
        "a: &a {x: 1, y: [.inf, -.5, 0x10, 'é', null, true]}\nb: {<<: *a, x: 3}\n...\nc: *a\nd: 1\nd: 2\n"
        "e: 123456789012345678901234567890\nf: []\ng: {}\n"
    )
    here, there = parse_here(text), parse(text + PADDING)
    assert there == here
    assert parse(PADDING) == parse_here("")


@pytest.mark.parametrize(("text", "line"), [("a: b: c\n", 1), ("a: 1\nb: *hunter2\n", 2), ("a: \ud800\n", 0)])
def test_a_large_text_is_refused_as_a_small_one_is(text: str, line: int) -> None:
    with pytest.raises(Unreadable) as here:
        parse_here(text)
    with pytest.raises(Unreadable) as there:
        parse(text + PADDING)
    assert (there.value.message, there.value.line) == (here.value.message, line)


def test_a_text_that_takes_too_long_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As what the YAML library may do for minutes, where nothing can be asked to end."""
    monkeypatch.setattr(yaml_reader, "LIMIT_S", 1)
    _library(monkeypatch, tmp_path, "pass")
    with pytest.raises(Unreadable, match="takes longer than 1 s"):
        parse(PADDING)


def test_end_of_the_time_limit_kills_the_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    began = tmp_path / "began"
    os.mkfifo(began)
    _library(monkeypatch, tmp_path, f"open({str(began)!r}, 'w')")
    patience = Patience(3600)
    context = contextvars.copy_context()
    context.run(document.patience.set, patience)
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(context.run, parse, PADDING)
        began.open("rb").close()
        patience.end()
        with pytest.raises(Unreadable, match="takes longer"):
            reading.result(30)


def _library(monkeypatch: pytest.MonkeyPatch, folder: Path, program: str) -> None:
    """The process has another YAML library. `program`: what its `parse` does."""
    patch = f"import time, yaml\ndef parse(*_, **__):\n    {program}\n    time.sleep(1000)\nyaml.parse = parse\n"
    (folder / "sitecustomize.py").write_text(patch)
    monkeypatch.setenv("PYTHONPATH", str(folder))


@pytest.mark.parametrize("ended", [True, False])
def test_text_is_not_read_after_the_time_limit(ended: bool) -> None:
    patience = Patience(3600 if ended else -1)
    if ended:
        patience.end()
    token = document.patience.set(patience)
    try:
        assert parse("- 1\n" * 900).root.size == 901, "small ones are read all the same"
        with pytest.raises(Unreadable, match="takes longer than") as refused:
            parse("- 1\n" * 5_000)
        assert refused.value.line < 2_000
    finally:
        document.patience.reset(token)
