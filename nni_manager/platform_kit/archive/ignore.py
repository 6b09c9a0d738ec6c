"""`.nniignore` files: which entries of a code directory stay behind, in gitignore's semantics.

A folder's own file speaks before those of the folders above it, and in a file the last rule that matches decides.
Nothing below an ignored folder can be brought back, because such a folder is not walked.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from pathspec import PathSpec
from pathspec.pattern import RegexPattern

from nni_manager.platform_kit.archive.glob import NEWLINE, Rule, parse_rule

IGNORE_FILE = ".nniignore"


@dataclass(frozen=True, slots=True, kw_only=True)
class IgnoreFile:
    """The rules of one file."""

    #: Where it lies, relative to the code directory, as `_matchable` writes it; ends with a slash unless empty.
    folder: str
    for_folders: PathSpec[RegexPattern]
    for_files: PathSpec[RegexPattern]

    def verdict(self, path: str, *, is_folder: bool) -> bool | None:
        """True: ignored; False: brought back; None: no rule matches."""
        rules = self.for_folders if is_folder else self.for_files
        return rules.check_file(path[len(self.folder) :]).include


#: The files that hold in a folder, the nearest first.
IgnoreFiles = tuple[IgnoreFile, ...]


def read_ignore_file(folder: str, content: bytes) -> IgnoreFile:
    """`folder`: relative to the code directory, empty for itself."""
    lines = content.removeprefix(b"\xef\xbb\xbf").decode("latin-1").split("\n")
    # git ends a line at a NUL
    rules = [rule for line in lines if (rule := parse_rule(line.partition("\0")[0]))]
    return IgnoreFile(
        folder=_matchable(f"{folder}/") if folder else "",
        for_folders=_spec(rules),
        for_files=_spec([rule for rule in rules if not rule.folders_only]),
    )


def is_ignored(path: str, files: IgnoreFiles, *, is_folder: bool) -> bool:
    """`path`: relative to the code directory; symbolic links are no folders."""
    matchable = _matchable(path)
    for file in files:
        verdict = file.verdict(matchable, is_folder=is_folder)
        if verdict is not None:
            return verdict
    return False


def _spec(rules: list[Rule]) -> PathSpec[RegexPattern]:
    return PathSpec([RegexPattern(rule.regex, include=rule.ignores) for rule in rules])


def _matchable(path: str) -> str:
    return os.fsencode(path).decode("latin-1").replace("\n", NEWLINE)
