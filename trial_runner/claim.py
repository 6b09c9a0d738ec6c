"""Whose folder it is: of several containers of one attempt the one that greeted last."""

import json
import os
from typing import Any, Dict

from trial_runner import protocol
from trial_runner.whole_file import write_file

#: Seconds between two looks at a folder that another container may have taken over.
LOOK_S = 5.0


class Claim:
    """Of one container, on a folder that the manager reads."""

    def __init__(self, folder: str, container: str) -> None:
        self._path = os.path.join(folder, protocol.RUNNER_FILE)
        self._container = container

    def make(self, greeting: Dict[str, Any]) -> None:
        """Leaves the greeting for the manager. Raises OSError."""
        write_file(self._path, json.dumps(greeting).encode(), 0o666)

    def is_lost(self) -> bool:
        """Another container has greeted since; False when that cannot be read: storage has its moments."""
        try:
            with open(self._path, "rb") as file:
                holder = json.loads(file.read()).get("container")
        except (OSError, ValueError, AttributeError):
            return False
        return isinstance(holder, str) and holder not in ("", self._container)
