"""The code archive: a code directory, packed once per experiment for every platform that is not this machine.

Other packages use `pack`, `copy`, `unpack` (of an upload), and `require_small` before either. Below them: `tree` opens
files without following links, and judges those that travel, `ignore` reads `.nniignore` as git reads `.gitignore`,
`walk` lists what travels and counts it, `packing` writes it, `copying` copies it.
"""

from nni_manager.code_archive.copying import copy
from nni_manager.code_archive.packing import Archive, NotWanted, always, pack, require_small, unpack
from trial_runner.wire.code_archive import MOST_BYTES, MOST_FILES

__all__ = ["MOST_BYTES", "MOST_FILES", "Archive", "NotWanted", "always", "copy", "pack", "require_small", "unpack"]
