"""What travels of a code directory, as it was at one moment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


def join(folder: str, name: str) -> str:
    """The path of something in a folder; that of the code directory itself is empty."""
    return f"{folder}/{name}" if folder else name


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A file or a symbolic link."""

    name: str
    #: Of a link; empty for a file.
    target: str = ""
    is_executable: bool = False
    #: In bytes; 0 for a link.
    size: int = 0
    #: Differs when the file is another one or was written to.
    stamp: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """A folder, without the folders in it."""

    #: Relative to the code directory; empty for itself.
    path: str
    entries: tuple[Entry, ...]

    @property
    def bytes(self) -> int:
        return sum(entry.size for entry in self.entries)

    def path_of(self, name: str) -> str:
        """Of something in it, relative to the code directory."""
        return join(self.path, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """All of it; folders come before what is in them, everything in the order of its names' bytes."""

    folders: tuple[Folder, ...]
    #: False: there is more, but this is far too much already.
    is_complete: bool = True

    @property
    def files(self) -> int:
        """Number of files and links."""
        return sum(len(folder.entries) for folder in self.folders)

    @property
    def bytes(self) -> int:
        return sum(folder.bytes for folder in self.folders)


def first_difference(one: Listing, other: Listing) -> str:
    """Path of the first thing that two listings do not agree on; they must differ."""
    return min(path for path, _ in set(_things(one)) ^ set(_things(other)))


def _things(listing: Listing) -> Iterator[tuple[str, Entry | None]]:
    for folder in listing.folders:
        yield folder.path, None
        for entry in folder.entries:
            yield folder.path_of(entry.name), entry
