"""`.nniignore` files: git's patterns, exactly, as regular expressions.

The library pathspec differs from git: it refuses lines that git accepts, such as `a\\`, and interprets `s**/a` and
`a/***/b` differently (`test_pathspec_differs_from_git`). Text here is bytes decoded as Latin-1, because git matches
bytes: `?` is one byte. A line break in a file name is written `NEWLINE`, so that `.` and `$` need no flags.
"""

from __future__ import annotations

import os
import re
import string
from dataclasses import dataclass

NEWLINE = "\u2424"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """The rule of one line of an `.nniignore` file."""

    #: Matches whole paths, relative to the folder of the rule's file.
    regex: re.Pattern[str]
    #: False for a line that begins with ``!``.
    ignores: bool
    #: The line ends with a slash.
    folders_only: bool


def parse_rule(line: str) -> Rule | None:
    """The rule of a line of `.nniignore`; None for blank lines, comments, and patterns that match nothing."""
    if line.startswith("#"):
        return None
    glob = _without_trailing_spaces(line.removesuffix("\r"))
    negated, glob = glob.startswith("!"), glob.removeprefix("!")
    folders_only, glob = glob.endswith("/"), glob.removesuffix("/")
    regex = _regex(glob)
    if regex is None:
        return None
    return Rule(regex=re.compile(regex), ignores=not negated, folders_only=folders_only)


def _without_trailing_spaces(line: str) -> str:
    # tabs stay, and so does a space behind a backslash
    bare = line.rstrip(" ")
    backslashes = len(bare) - len(bare.rstrip("\\"))
    return line[: len(bare) + 1] if backslashes % 2 else bare


def _regex(glob: str) -> str | None:
    """The regular expression of the whole paths that a glob matches; None if it never matches."""
    if not glob:
        return None
    if "/" not in glob:
        # a name without slash matches at any depth
        wild = _wild(glob)
        return None if wild is None else f"^(?:.*/)?{wild}$"
    literal, rest = _split(glob.removeprefix("/"))
    wild = _wild(rest)
    return None if wild is None else f"^{re.escape(literal)}{wild}$"


def _split(glob: str) -> tuple[str, str]:
    """The glob's literal beginning, which is compared separately, and the rest for a regular expression."""
    literal = re.match(r"[^*?\[\\]*", glob)
    assert literal is not None
    return literal[0], glob[literal.end() :]


def _wild(glob: str) -> str | None:
    regex, at = "", 0
    while at < len(glob):
        element, at = _element(glob, at)
        if element is None:
            return None
        regex += element
    return regex


def _element(glob: str, at: int) -> tuple[str | None, int]:
    """The regular expression of the element at `at`, or None if it never matches, and the next position."""
    if glob[at] == "*":
        return _stars(glob, at)
    if glob[at] == "?":
        return "[^/]", at + 1
    if glob[at] == "[":
        return _set(glob, at + 1)
    if glob[at] == "\\":
        at += 1
    return (re.escape(glob[at]), at + 1) if at < len(glob) else (None, at)


def _stars(glob: str, at: int) -> tuple[str, int]:
    end = at
    while glob.startswith("*", end):
        end += 1
    if end - at == 1 or (at > 0 and glob[at - 1] != "/"):
        return "[^/]*", end
    if glob.startswith("/", end):
        return "(?:.*/)?", end + 1
    return (".*" if end == len(glob) or glob.startswith("\\/", end) else "[^/]*"), end


def _set(glob: str, at: int) -> tuple[str | None, int]:
    """The regular expression of the set ``[…]`` with content from `at`, and the next position."""
    negated = glob.startswith(("!", "^"), at)
    first = at = at + negated
    members: frozenset[str] = frozenset()
    previous = ""
    while at == first or not glob.startswith("]", at):
        found, previous, at = _member(glob, at, previous)
        if found is None:
            return None, at
        members |= found
    return _set_regex(members, negated), at + 1


_Member = tuple[frozenset[str] | None, str, int]


def _member(glob: str, at: int, previous: str) -> _Member:
    """The characters of a member, None if the set is malformed; the start of a possible range; the next position."""
    if glob.startswith("[:", at):
        return _character_class(glob, at)
    if previous and glob.startswith("-", at) and glob[at + 1 : at + 2] not in ("", "]"):
        high, at = _character(glob, at + 1)
        return (frozenset(map(chr, range(ord(previous), ord(high) + 1))) if high else None), "", at
    one, at = _character(glob, at)
    return (frozenset(one) if one else None), one, at


def _character(glob: str, at: int) -> tuple[str, int]:
    """The character of a set at `at`, empty at the end of the pattern, and the next position."""
    at += glob.startswith("\\", at)
    return glob[at : at + 1], at + 1


def _character_class(glob: str, at: int) -> _Member:
    begin, close = at + 2, glob.find("]", at + 2)
    if close > begin and glob[close - 1] == ":":
        return _CLASSES.get(glob[begin : close - 1]), "", close + 1
    return (frozenset("[") if close >= 0 else None), "[", at + 1


_PRINTABLE = frozenset(string.digits + string.ascii_letters + string.punctuation + " ")
_CLASSES = {
    "alnum": frozenset(string.digits + string.ascii_letters),
    "alpha": frozenset(string.ascii_letters),
    "blank": frozenset(" \t"),
    "cntrl": frozenset(map(chr, (*range(32), 127))),
    "digit": frozenset(string.digits),
    "graph": _PRINTABLE - {" "},
    "lower": frozenset(string.ascii_lowercase),
    "print": _PRINTABLE,
    "punct": frozenset(string.punctuation),
    "space": frozenset(" \t\n\r"),  # git knows only these
    "upper": frozenset(string.ascii_uppercase),
    "xdigit": frozenset(string.hexdigits),
}


def _set_regex(members: frozenset[str], negated: bool) -> str | None:
    """The regular expression of a set of characters, without slash; None if it never matches."""
    characters = sorted(members - {"/"})
    escaped = "".join(NEWLINE if character == "\n" else f"\\x{ord(character):02x}" for character in characters)
    if negated:
        return f"[^{escaped}/]"
    return f"[{escaped}]" if escaped else None


IGNORE_FILE = ".nniignore"


@dataclass(frozen=True, slots=True, kw_only=True)
class IgnoreFile:
    """The rules of one `.nniignore` file."""

    #: Its folder, relative to the code directory, as `_matchable` writes it; ends with a slash unless empty.
    folder: str
    #: The last one first.
    rules: tuple[Rule, ...]

    def verdict(self, path: str, *, is_folder: bool) -> bool | None:
        """Whether this file ignores a path. True: ignored; False: included again; None: no rule matches."""
        below = path[len(self.folder) :]
        for rule in self.rules:
            if (is_folder or not rule.folders_only) and rule.regex.match(below):
                return rule.ignores
        return None


#: The files that apply in a folder, the nearest first.
IgnoreFiles = tuple[IgnoreFile, ...]


def read_ignore_file(folder: str, content: bytes) -> IgnoreFile:
    """The rules of an `.nniignore` file. `folder`: relative to the code directory, empty for itself."""
    lines = content.removeprefix(b"\xef\xbb\xbf").decode("latin-1").split("\n")
    # git ends a line at a NUL
    rules = [rule for line in reversed(lines) if (rule := parse_rule(line.partition("\0")[0]))]
    return IgnoreFile(folder=_matchable(f"{folder}/") if folder else "", rules=tuple(rules))


def is_ignored(path: str, files: IgnoreFiles, *, is_folder: bool) -> bool:
    """Whether a path, relative to the code directory, is ignored. Symbolic links do not count as folders."""
    matchable = _matchable(path)
    for file in files:
        verdict = file.verdict(matchable, is_folder=is_folder)
        if verdict is not None:
            return verdict
    return False


def _matchable(path: str) -> str:
    return os.fsencode(path).decode("latin-1").replace("\n", NEWLINE)
