"""The code archive: a code directory, packed once per experiment for every platform that is not this machine.

`pack`, `unpack` for one that came from elsewhere, and `require_small` before either, are all that others need. Below
them: `tree` opens files without following links, `ignore` reads `.nniignore` as git reads `.gitignore`, `walk` lists
what travels into a `listing`, which judges links, `limits` counts it, `packing` writes it. May import `domain`.
"""

from nni_manager.code_archive.limits import MOST_BYTES, MOST_FILES
from nni_manager.code_archive.packing import Archive, NotWanted, always, pack, require_small
from nni_manager.code_archive.unpack import unpack

__all__ = ["MOST_BYTES", "MOST_FILES", "Archive", "NotWanted", "always", "pack", "require_small", "unpack"]
