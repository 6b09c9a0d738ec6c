"""Paths of a container as local paths: without a separate root and mounts, texts are rewritten.

A mount path is replaced wherever it occurs as a whole path in commands, arguments, environment, working folders, and
the files of config maps and secrets.
"""

from __future__ import annotations

import re
from pathlib import Path


class Paths:
    """The mounts of one container."""

    def __init__(self, mounts: dict[str, Path]) -> None:
        self._mounts = {path.rstrip("/") or "/": folder for path, folder in mounts.items()}
        longest_first = sorted((re.escape(path) for path in self._mounts), key=len, reverse=True)
        self._pattern = re.compile(rf"(?<![\w./-])({'|'.join(longest_first)})(?![\w.-])") if longest_first else None

    def of(self, text: str) -> str:
        if self._pattern is None:
            return text
        return self._pattern.sub(lambda found: str(self._mounts[found[1]]), text)
