"""The code archive: a code directory, packed once per experiment for platforms other than this machine.

Other packages use `pack`, `copy`, `unpack` (of an upload), and before them `require_small`. `tree` opens files without
following links, and checks links; `ignore` reads `.nniignore` like git's `.gitignore`; `walk` lists and counts included
files; `packing` writes and `copying` copies them.
"""

from nni_manager.code_archive.copying import copy
from nni_manager.code_archive.packing import Archive, NotWanted, always, pack, require_small, unpack
from trial_runner.wire.code_archive import MOST_BYTES, MOST_FILES

__all__ = ["MOST_BYTES", "MOST_FILES", "Archive", "NotWanted", "always", "copy", "pack", "require_small", "unpack"]
