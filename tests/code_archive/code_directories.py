"""Code directories to pack, and archives to look into."""

from __future__ import annotations

import os
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path

Tree = Mapping[str, "str | bytes | None"]


def grow(directory: Path, tree: Tree) -> Path:
    """Makes files; None: a folder; a text that begins with ``->``: a symbolic link."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in tree.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            path.mkdir(exist_ok=True)
        elif isinstance(content, str) and content.startswith("->"):
            path.symlink_to(content[2:])
        else:
            path.write_bytes(content.encode() if isinstance(content, str) else content)
    return directory


def members(archive: Path) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(archive) as tar:
        return {member.name: member for member in tar.getmembers()}


def packed_files(archive: Path) -> set[str]:
    """All but folders."""
    return {name for name, member in members(archive).items() if not member.isdir()}


def packed_folders(archive: Path) -> set[str]:
    return {name for name, member in members(archive).items() if member.isdir()}


def content(archive: Path, name: str) -> bytes:
    with tarfile.open(archive) as tar:
        file = tar.extractfile(name)
        assert file is not None
        return file.read()


def git_files(repository: Path, directory: Path) -> set[str]:
    """What git would keep of a directory if `.nniignore` were its ignore file."""
    listed = subprocess.run(
        [
            "git",
            f"--git-dir={repository}",
            f"--work-tree={directory}",
            "-c",
            "core.excludesFile=",
            "ls-files",
            "-co",
            "-z",
            "--exclude-per-directory=.nniignore",
        ],
        cwd=directory,
        capture_output=True,
        check=True,
    )
    return {os.fsdecode(name) for name in listed.stdout.split(b"\0") if name}
