"""Whose folder it is: of several containers of one attempt the one that greeted last."""

import json
from typing import Any, Dict

from trial_runner import protocol
from trial_runner.wire import foreign_files

#: Seconds between two looks at a folder that another container may have taken over.
LOOK_S = 5.0
#: Of a greeting, which names up to `protocol.MOST_OUTBOXES` outboxes.
_WORD_BYTES = 1024 * 1024


class Claim:
    """Of one container, on a folder that the manager reads."""

    def __init__(self, folder: str, container: str) -> None:
        self._folder = folder
        self._container = container

    def make(self, greeting: Dict[str, Any]) -> None:
        """Leaves the greeting for the manager. Raises OSError."""
        foreign_files.write_whole(self._folder, protocol.RUNNER_FILE, json.dumps(greeting).encode(), 0o666)

    def is_lost(self) -> bool:
        """Another container has greeted since; False when that cannot be read: storage has its moments."""
        try:
            word = foreign_files.read(self._folder, protocol.RUNNER_FILE, 0, _WORD_BYTES)
            holder = json.loads(word.decode()).get("container")
        except (OSError, ValueError, AttributeError):
            return False
        return isinstance(holder, str) and holder not in ("", self._container)
