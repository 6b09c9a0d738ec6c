"""Code that was sent."""

from __future__ import annotations

from pydantic import Field

from nni_manager.api.schemas.wire import Wire


class Code(Wire):
    """A code directory that experiments can be made of."""

    sha256: str = Field(description="SHA-256 of the packed code, in hex; `code` of a new experiment.")
    directory: str = Field(description="Where it lies as it was sent, unpacked, on the daemon's machine.")
