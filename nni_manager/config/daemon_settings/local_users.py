"""The value of ``allowLocalUsers``: ``true``, or names of users of this machine."""

from __future__ import annotations

import pwd

from nni_manager.config.reading import scalars


def local_users(raw: object) -> bool | frozenset[int]:
    """True: all users; else the ids of those that are named, in a list or with commas between them. Raises
    ValueError."""
    if isinstance(raw, bool):
        return raw
    names = raw.split(",") if isinstance(raw, str) else raw
    if not isinstance(names, list):
        raise ValueError(f"must be true, false or names of users, not {scalars.kind(raw)}")
    return frozenset(_uid(scalars.text(name).strip()) for name in names)


def _uid(name: str) -> int:
    try:
        return pwd.getpwnam(name).pw_uid
    except (KeyError, ValueError):
        raise ValueError(f"names {name!r}, which is no user of this machine") from None
