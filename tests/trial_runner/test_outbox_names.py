"""Names of outboxes as text: two files never have one spelling, and every spelling leads back to its file."""

import os

import pytest

from trial_runner.wire.outbox_files import earlier_names, file_name, file_of, is_outbox, newest_name, next_name, spelled

pytestmark = pytest.mark.unit

NAMES = {
    b"outbox/main.jsonl": "outbox/main.jsonl",
    "outbox/größe 7.jsonl".encode(): "outbox/größe 7.jsonl",
    b"outbox/caf\xe9.jsonl": "outbox/caf\\xe9.jsonl",
    b"outbox/caf\\xe9.jsonl": "outbox/caf\\\\xe9.jsonl",
    b"outbox/\xff\xfe": "outbox/\\xff\\xfe",
    b"outbox/a\nb\x1b[0m": "outbox/a\\x0ab\\x1b[0m",
    "outbox/\u2028".encode(): "outbox/\\xe2\\x80\\xa8",
    b"outbox/\\": "outbox/\\\\",
}


@pytest.mark.parametrize(("name", "spelling"), NAMES.items())
def test_spellings(name: bytes, spelling: str) -> None:
    assert spelled(os.fsdecode(name)) == spelling
    assert os.fsencode(file_name(spelling)) == name
    assert spelling.isprintable()


def test_each_byte_has_a_distinct_spelling() -> None:
    names = [os.fsdecode(bytes([byte])) for byte in range(1, 256) if byte != ord("/")]
    assert len({spelled(name) for name in names}) == len(names)
    assert [file_name(spelled(name)) for name in names] == names


@pytest.mark.parametrize(
    ("spelling", "is_one"),
    [
        ("outbox/a", True),
        (".nni/metrics", True),
        ("outbox/a/b..c", True),
        ("outbox/" + "a" * 248, True),
        ("outbox/" + "a" * 249, False),
        ("stdout", False),
        ("outbox", False),
        ("outbox/../stdout", False),
        ("outbox/a\nb", False),
        ("outbox/\udcff", False),
        ("outbox/a/2", True),
        (".nni/metrics/2", True),
        (".nni/metrics/02", False),
        (".nni/metrics/2/3", False),
        ("outbox/" + "a" * 248 + "/12", True),
    ],
)
def test_valid_outbox_names(spelling: str, is_one: bool) -> None:
    assert is_outbox(spelling) is is_one


def test_names_of_outboxes_whose_file_became_another_one() -> None:
    names = ["outbox/7", "outbox/7/2", "outbox/7/3"]
    assert [next_name("outbox/7", name) for name in names] == [*names[1:], "outbox/7/4"]
    assert (newest_name("outbox/7", names), newest_name("outbox/8", names)) == ("outbox/7/3", "outbox/8")
    assert list(earlier_names("outbox/7/3")) == ["outbox/7", "outbox/7/2"]
    assert [*earlier_names("outbox/a"), *earlier_names("outbox/1")] == []
    assert [file_of(name, names) for name in names] == ["outbox/7"] * 3
    for name in ("outbox/folder/7", "outbox/999999999", "outbox/7/999999999"):
        assert file_of(name, names) == name, "a number is also a name"
