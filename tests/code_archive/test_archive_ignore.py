"""`.nniignore` compared with `.gitignore`: git decides which files are included."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from code_directories import Tree, git_files, grow, packed_files, packed_folders
from hypothesis import given, settings
from hypothesis import strategies as st
from pathspec import GitIgnoreSpec

from nni_manager.code_archive import pack

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(180)]

PROJECT: Tree = dict.fromkeys(
    """
    train.py model.py notes.txt .hidden .config/keep.yml data/a.csv data/b.csv data/raw/a.csv data/raw/keep.csv
    src/data/a.csv src/train.py src/train.pyc src/deep/er/x.pyc src/deep/er/y.py build/out.o src/build/out.o build.py
    logs/a.log logs/debug/b.log a.log b.txt c1.txt c2.txt foo/bar/baz foo/qux foobar/x foobar/deep/bar #hash !bang
    """.split(),
    "",
) | {"sp ace": "", "end ": "", "tab\t": "", "b]": "", "line\nbreak.log": "", "bäume/größe.txt": "", "back\\slash": ""}

CASES: dict[str, Tree] = {
    "no rules": {},
    "a name at any depth": {".nniignore": "a.csv"},
    "a suffix": {".nniignore": "*.pyc\n*.log"},
    "a suffix but one": {".nniignore": "*.csv\n!keep.csv"},
    "the later rule decides": {".nniignore": "!a.csv\n*.csv\n!b.csv\nb.csv"},
    "a leading slash": {".nniignore": "/build\n/train.py"},
    "a trailing slash is for folders": {".nniignore": "build/\ntrain.py/\nbuild.py/"},
    "a slash inside anchors": {".nniignore": "data/a.csv\nsrc/build"},
    "what is below an ignored folder stays ignored": {".nniignore": "data/\n!data/raw/keep.csv"},
    "folders are brought back one by one": {".nniignore": "data/*\n!data/raw/\ndata/raw/*\n!data/raw/keep.csv"},
    "all but": {".nniignore": "/*\n!/src\n!/.config\n/src/*\n!/src/train.py"},
    "everything": {".nniignore": "*"},
    "everything but": {".nniignore": "*\n!*/\n!*.py"},
    "two stars in front": {".nniignore": "**/data\n**/er/x.pyc"},
    "two stars inside": {".nniignore": "src/**/x.pyc\nfoo/**/qux"},
    "two stars behind": {".nniignore": "foo/**\n!foo/qux"},
    "two stars behind do not mean the folder": {".nniignore": "foo/**\n!foo/bar\n!foo/bar/baz"},
    "two stars alone": {".nniignore": "**"},
    "two stars and a slash": {".nniignore": "**/"},
    "two stars in a name": {".nniignore": "s**/train.py\n/foo**/bar"},
    "three stars": {".nniignore": "src/***/y.py"},
    "a question mark is a byte": {".nniignore": "c?.txt\ngr?ße.txt\ngr????e.txt"},
    "sets": {".nniignore": "c[12].txt\n[!a-m]otes.txt\n[^a].log\n[a-]"},
    "sets of every kind": {".nniignore": "c[[:digit:]].txt\nb[]]\n[\\!]bang\n[z-a]x\n[[:oops:]]\nb[\\]]\nfoo[/]bar\n["},
    "comments": {".nniignore": "# a.log\n#hash\n\\#hash\n  # b.txt"},
    "escapes": {".nniignore": "\\!bang\nsp\\ ace\nback\\\\slash\nb.txt\\"},
    "trailing spaces": {".nniignore": "a.log   \nend\\ \n   \nb.txt\\  "},
    "a trailing tab": {".nniignore": "a.log\t\ntab\t"},
    "line ends of Windows": {".nniignore": "*.csv\r\n\r\nbuild/\r\n"},
    "a byte order mark": {".nniignore": "\ufeffa.log\nb.txt"},
    "a NUL": {".nniignore": "a.log\0rest\nb.txt"},
    "bytes that are not text": {".nniignore": b"a.log\n\xff\nb.txt\xa0\n", os.fsdecode(b"\xff"): ""},
    "names beyond ASCII": {".nniignore": "bäume/größe.txt"},
    "slashes only": {".nniignore": "/\n//\n!\n!/\n"},
    "double slashes": {".nniignore": "src//train.py\n//train.py"},
    "case counts": {".nniignore": "A.LOG\nTrain.py"},
    "a nested file is relative to its folder": {"src/.nniignore": "/train.py\n*.pyc\ndata/a.csv"},
    "the nearer file decides": {
        ".nniignore": "*.csv\nsrc/train.pyc",
        "src/data/.nniignore": "!a.csv",
        "src/.nniignore": "!*.pyc",
    },
    "a nested file of an ignored folder is not read": {".nniignore": "data", "data/.nniignore": "!*"},
    "nested files may ignore themselves": {".nniignore": ".nniignore", "src/.nniignore": "*.pyc"},
    "a folder of that name": {"src/.nniignore/inside": "train.py"},
    "rules for links": {".nniignore": "latest/\n", "latest": "->data", "newest": "->data"},
    "an ignored link": {".nniignore": "latest\n", "latest": "->/etc/passwd"},
    "a link to what is ignored": {".nniignore": "data\n", "latest": "->data"},
}
#: Rules that match nothing, as they should.
NEUTRAL = {"no rules", "slashes only", "double slashes", "case counts", "a folder of that name", "rules for links"}


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("git")
    subprocess.run(["git", "init", "--quiet", "--bare", str(path)], check=True)
    yield path


@pytest.mark.parametrize("name", CASES)
def test_packed_files_are_those_that_git_keeps(name: str, repository: Path, tmp_path: Path) -> None:
    code = grow(tmp_path / "code", {**PROJECT, **CASES[name]})
    archive = pack(code, tmp_path / "out")
    expected = git_files(repository, code)
    assert packed_files(archive.path) == expected
    assert archive.files == len(expected)


@pytest.mark.parametrize("name", ["two stars in a name", "three stars", "escapes"])
def test_pathspec_differs_from_git(name: str, repository: Path, tmp_path: Path) -> None:
    """The reason for a translation of our own."""
    tree = {**PROJECT, **CASES[name]}
    expected = git_files(repository, grow(tmp_path / "code", tree))
    try:
        rules = GitIgnoreSpec.from_lines(str(tree[".nniignore"]).split("\n"))
        assert {path for path in tree if not rules.match_file(path)} != expected
    except (re.error, ValueError):
        pass  # it refuses a line that git takes


@pytest.mark.parametrize("name", sorted(CASES.keys() - NEUTRAL))
def test_each_case_changes_git_s_selection(name: str, repository: Path, tmp_path: Path) -> None:
    silenced = {path: "" if path.endswith(".nniignore") else what for path, what in CASES[name].items()}
    without = git_files(repository, grow(tmp_path / "without", {**PROJECT, **silenced}))
    with_rules = git_files(repository, grow(tmp_path / "with", {**PROJECT, **CASES[name]}))
    assert with_rules < without


def test_folders_are_kept_unless_ignored(tmp_path: Path) -> None:
    code = grow(
        tmp_path / "code",
        {".nniignore": "gone/\nempty-by-rule/*", "empty": None, "a/b/c": None, "gone/x": None, "empty-by-rule/x": ""},
    )
    assert packed_folders(pack(code, tmp_path / "out").path) == {"empty", "a", "a/b", "a/b/c", "empty-by-rule"}


def test_an_ignored_folder_is_not_walked(tmp_path: Path) -> None:
    code = grow(tmp_path / "code", {".nniignore": "data/", "train.py": "", "data/out": "->/etc", "data/x": ""})
    os.mkfifo(code / "data" / "pipe")
    assert packed_files(pack(code, tmp_path / "out").path) == {".nniignore", "train.py"}


NAMES = st.sampled_from(
    [
        "a",
        "b",
        "ab",
        "ba",
        "a.b",
        ".a",
        "-",
        "[",
        "]",
        "a]",
        "!",
        "#a",
        "a b",
        "a ",
        "\\",
        "a\\",
        "é",
        "^",
        "*",
        ":",
        "a\n",
        "a\r",
        "b\t",
        "\xa0",
        os.fsdecode(b"\xe9"),
    ]
)
PATTERNS = st.lists(
    st.sampled_from(
        [*"ab*?/[]!^\\-#: .\t\ré\xa0", "**", "/**", "**/", "***", "[a-b]", "[!a]", "[[:alpha:]]", "[^", "\\]", "a*"]
    ),
    min_size=1,
    max_size=7,
).map("".join)
RULES = st.lists(PATTERNS, min_size=1, max_size=5).map("\n".join)
PATHS = st.lists(NAMES, min_size=1, max_size=4).map("/".join)


@pytest.mark.thorough
@settings(max_examples=300, database=None)
@given(
    files=st.sets(PATHS, min_size=1, max_size=12),
    folders=st.sets(PATHS, max_size=3),
    links=st.sets(PATHS, max_size=2),
    rules=RULES,
    nested=st.dictionaries(PATHS, RULES, max_size=3),
)
def test_random_rules_and_trees_agree_with_git(
    repository: Path, files: set[str], folders: set[str], links: set[str], rules: str, nested: dict[str, str]
) -> None:
    with tempfile.TemporaryDirectory() as place:
        code = Path(place, "code")
        rule_files = {f"{folder}/.nniignore": text for folder, text in nested.items()}
        wanted = {**dict.fromkeys(files, ""), **dict.fromkeys(folders), **dict.fromkeys(links, "->."), **rule_files}
        grow(code, _without_clashes({".nniignore": rules, **wanted}))
        archive = pack(code, Path(place, "out"))
        assert packed_files(archive.path) == git_files(repository, code)


def _without_clashes(tree: Tree) -> Tree:
    """A path that others lie below is a folder."""
    above = {path[:at] for path in tree for at, character in enumerate(path) if character == "/"}
    return {path: None if path in above else what for path, what in tree.items()}
