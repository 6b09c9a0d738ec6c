"""Symbolic links of a code directory: they travel as links, so what they lead to must travel too."""

from __future__ import annotations

import os.path

from nni_manager.platform_kit.archive.listing import join
from nni_manager.platform_kit.archive.tree import Tree


def contained_target(tree: Tree, folder: str, name: str, target: str) -> str:
    """The target to pack for the link `folder`/`name`: as it is, or relative when it is an absolute one.

    Raises InvalidInput when the link leads out of the tree on any part of its way, or to nothing. A link to something
    that `.nniignore` leaves out is kept: git keeps it too.
    """
    path = join(folder, name)
    root = os.path.realpath(tree.directory)
    try:
        found = _follow(root, os.path.join(root, folder), target)
    except OSError as error:
        reason = f"is a link to {target!r}, which cannot be followed ({error.strerror}); correct the link"
        raise tree.refusal(path, reason) from error
    if found is None:
        reason = f"is a link that leads out of it, to {target!r}; put what it leads to into the directory"
        raise tree.refusal(path, reason)
    return os.path.relpath(found, os.path.join(root, folder)) if os.path.isabs(target) else target


def _follow(root: str, start: str, target: str) -> str | None:
    """Where a link ends; None when that is, or the way there passes, outside `root`. Raises OSError."""
    if os.path.isabs(target):
        place = os.path.realpath(target, strict=True)
        return place if _is_inside(root, place) else None
    place = start
    for part in target.split("/"):
        place = os.path.realpath(os.path.join(place, part), strict=True)
        if not _is_inside(root, place):
            return None  # '../code/model.py' comes back here, but not where it is unpacked
    return place


def _is_inside(root: str, place: str) -> bool:
    return os.path.commonpath((root, place)) == root
