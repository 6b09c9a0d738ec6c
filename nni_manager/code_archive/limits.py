"""The limits on how much code may travel: NNI's, counted without what `.nniignore` leaves out."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from nni_manager.code_archive.listing import Folder, Listing
from nni_manager.domain.errors import InvalidInput
from trial_runner.wire.code_archive import MOST_BYTES, MOST_FILES

#: Files or folders, at which counting stops; so many show which folder holds most.
FAR_TOO_MANY = 10 * MOST_FILES


def check(listing: Listing, directory: Path) -> None:
    """Checks a listing. Raises InvalidInput that names the folder with the most of what is too much."""
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
        f"trialCodeDirectory: {str(directory)!r} has {found}{so_far}, {where}, but at most {allowed} may travel to a "
        "trial; list what trials do not need in its .nniignore."
    )


def _biggest(listing: Listing, weight: Callable[[Folder], int]) -> str:
    """The innermost folder that holds more than half of everything, else the biggest that is not in another one."""
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
