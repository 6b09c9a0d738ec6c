"""Lists a code directory without files that `.nniignore` excludes, and checks NNI's limits of size.

Files that cannot be packed are refused by name. The limits do not count excluded files.
"""

from __future__ import annotations

import errno
import math
import os
import stat
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from nni_manager.code_archive.ignore import IGNORE_FILE, IgnoreFiles, is_ignored, read_ignore_file
from nni_manager.code_archive.tree import Entry, Folder, Listing, Tree, contained_target, join
from nni_manager.domain.errors import InvalidInput
from trial_runner.wire.code_archive import MOST_BYTES, MOST_FILES

#: Number of files or folders at which counting stops; it suffices to find the largest folder.
FAR_TOO_MANY = 10 * MOST_FILES


def check_limits(listing: Listing, directory: Path) -> None:
    """Check a listing. Raises InvalidInput that names the largest folder."""
    if listing.files > MOST_FILES:
        _refuse(listing, directory, f"{listing.files} files", f"{MOST_FILES} files", lambda folder: len(folder.entries))
    if listing.bytes > MOST_BYTES:
        _refuse(listing, directory, _megabytes(listing.bytes), _megabytes(MOST_BYTES), lambda folder: folder.bytes)
    if not listing.is_complete:
        _refuse(listing, directory, f"{len(listing.folders)} folders", f"{MOST_FILES} files", lambda folder: 1)


def _refuse(listing: Listing, directory: Path, found: str, allowed: str, weight: Callable[[Folder], int]) -> None:
    so_far = "" if listing.is_complete else " and more"
    biggest = _biggest(listing, weight)
    where = f"most of it in {biggest!r}" if biggest else "most of it not in any folder"
    raise InvalidInput(
        f"trialCodeDirectory: {str(directory)!r} has {found}{so_far}, {where}, but at most {allowed} can be sent to "
        "trials; list files that trials do not need in its .nniignore."
    )


def _biggest(listing: Listing, weight: Callable[[Folder], int]) -> str:
    """The innermost folder with more than half of everything, else the largest top-level folder."""
    totals: Counter[str] = Counter()
    for folder in listing.folders:
        totals.update(dict.fromkeys(_with_folders_above(folder.path), weight(folder)))
    everything = totals.pop("")
    # any two that hold more than half lie in each other
    halves = [path for path, total in totals.items() if 2 * total > everything]
    return max(halves, key=len, default="") or _biggest_outermost(totals, everything)


def _biggest_outermost(totals: Counter[str], everything: int) -> str:
    outermost = {path: total for path, total in totals.items() if "/" not in path}
    directly = everything - sum(outermost.values())
    biggest = max(outermost, key=outermost.__getitem__, default="")
    return biggest if outermost.get(biggest, 0) > directly else ""


def _with_folders_above(path: str) -> Iterator[str]:
    while path:
        yield path
        path = path.rpartition("/")[0]
    yield ""


def _megabytes(size: int) -> str:
    # rounded up, so that a byte too much is seen
    return f"{math.ceil(size / 1024**2 * 10) / 10:,.1f} MB"


#: Maximum size of rules, which are handwritten text.
_MOST_RULES_BYTES = 1024**2


def walk(tree: Tree, *, leave_out: os.stat_result) -> Listing:
    """All included files, without the folder `leave_out`. Ignored folders are not opened.

    Stops with an incomplete listing if the limits are far exceeded. Raises Changed, InvalidInput.
    """
    return _Walk(tree, leave_out).listing()


class _Walk:
    def __init__(self, tree: Tree, leave_out: os.stat_result) -> None:
        self._tree = tree
        self._leave_out = leave_out
        self._folders: list[Folder] = []
        self._files = 0
        #: Folders to visit with the ignore files above them; the next one is last.
        self._open: list[tuple[str, IgnoreFiles]] = [("", ())]

    def listing(self) -> Listing:
        while self._open and not self._exceeds_limits():
            self._visit(*self._open.pop())
        return Listing(folders=tuple(self._folders), is_complete=not self._exceeds_limits())

    def _exceeds_limits(self) -> bool:
        return max(self._files, len(self._folders)) >= FAR_TOO_MANY

    def _visit(self, path: str, above: IgnoreFiles) -> None:
        with self._tree.folder(path) as descriptor:
            if os.path.samestat(os.fstat(descriptor), self._leave_out):
                return
            ignore_files = self._ignore_files(descriptor, path, above)
            files, folders = self._kept(descriptor, path, ignore_files)
            entries = [self._entry(descriptor, path, name) for name in sorted(files, key=os.fsencode)]
        self._folders.append(Folder(path=path, entries=tuple(entries)))
        self._files += len(entries)
        for name in sorted(folders, key=os.fsencode, reverse=True):
            self._open.append((join(path, name), ignore_files))

    def _kept(self, descriptor: int, path: str, ignore_files: IgnoreFiles) -> tuple[list[str], list[str]]:
        """The names of included entries of a folder: files and links, then folders."""
        kept: tuple[list[str], list[str]] = ([], [])
        with self._tree.reading(path), os.scandir(descriptor) as found:
            for item in found:
                is_folder = item.is_dir(follow_symlinks=False)
                if not is_ignored(join(path, item.name), ignore_files, is_folder=is_folder):
                    kept[is_folder].append(item.name)
                if self._files + len(kept[0]) >= FAR_TOO_MANY or len(kept[1]) >= FAR_TOO_MANY:
                    break
        return kept

    def _entry(self, descriptor: int, path: str, name: str) -> Entry:
        with self._tree.reading(join(path, name)):
            found = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            target = os.readlink(name, dir_fd=descriptor) if stat.S_ISLNK(found.st_mode) else ""
        if target:
            target = contained_target(self._tree, path, name, target)
            return Entry(name=name, target=target, stamp=stamp(found))
        if not stat.S_ISREG(found.st_mode):
            kind = _KINDS.get(stat.S_IFMT(found.st_mode), "special file")
            raise self._tree.refusal(join(path, name), f"is a {kind}, which cannot be sent; remove it")
        executable = bool(found.st_mode & 0o111)
        return Entry(name=name, is_executable=executable, size=found.st_size, stamp=stamp(found))

    def _ignore_files(self, descriptor: int, path: str, above: IgnoreFiles) -> IgnoreFiles:
        with self._tree.reading(join(path, IGNORE_FILE)):
            try:
                file = self._tree.open_file(descriptor, IGNORE_FILE)
            except FileNotFoundError:
                file = None
            except OSError as error:
                if error.errno != errno.ELOOP:
                    raise
                what = "is a symbolic link, but rules are not read through links (as in git); copy the file instead"
                raise self._tree.refusal(join(path, IGNORE_FILE), what) from error
        if file is None:
            return above
        return (read_ignore_file(path, self._rules(file, path)), *above)

    def _rules(self, file: int, path: str) -> bytes:
        with self._tree.reading(join(path, IGNORE_FILE)), open(file, "rb") as opened:
            content = opened.read(_MOST_RULES_BYTES + 1)
        if len(content) > _MOST_RULES_BYTES:
            raise self._tree.refusal(join(path, IGNORE_FILE), "has more than 1 MB of rules; use fewer")
        return content


def stamp(found: os.stat_result) -> tuple[int, ...]:
    """A file's state as numbers, which differ for another file and after a write or a change of mode."""
    return found.st_dev, found.st_ino, found.st_size, found.st_mode, found.st_mtime_ns, found.st_ctime_ns


_KINDS = {
    stat.S_IFSOCK: "socket",
    stat.S_IFIFO: "named pipe",
    stat.S_IFBLK: "block device",
    stat.S_IFCHR: "character device",
}
