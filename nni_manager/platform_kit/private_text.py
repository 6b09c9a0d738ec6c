"""What a training service keeps beside the secrets of its experiment. The store, which keeps it, needs no more of the
kit: commands that read closed experiments import no event loop.
"""

from __future__ import annotations


class PrivateText:
    """A text of one training service that is kept where secrets are. This one forgets it at the process's end."""

    def __init__(self) -> None:
        self._text = ""

    def read(self) -> str:
        """Blocks. Raises StoreError."""
        return self._text

    def write(self, text: str) -> None:
        """Blocks. Raises StoreError."""
        self._text = text
