"""An experiment's own port, which serves its page and NNI's API, as NNI does."""

from __future__ import annotations

import re
from dataclasses import dataclass

from nni_manager.domain.errors import InvalidInput

#: NNI's default port.
DEFAULT_PORT = 8080
_SEGMENT = re.compile(r"[A-Za-z0-9._~-]+")
_LONGEST = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A recorded endpoint."""

    #: TCP port, 1 to 65535.
    port: int
    #: Prefix of every path, without slashes at its ends; empty: none.
    prefix: str = ""

    @property
    def path(self) -> str:
        """The path below which it is served, ``/`` or ``/my/pre/``."""
        return f"/{self.prefix}/" if self.prefix else "/"


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointWish:
    """A requested endpoint."""

    #: 0: any free port. None: it is needed only where no service shows the experiment; `first`, or the next free one.
    port: int | None = None
    prefix: str = ""
    #: 0: any free port. None: the port in the daemon's settings.
    first: int | None = None

    @property
    def is_explicit(self) -> bool:
        """Whether the user named port or prefix, so that the endpoint must be opened or refused."""
        return self.port is not None or bool(self.prefix)


def parse_prefix(text: str) -> str:
    """``/my/pre/`` → ``my/pre``. Raises InvalidInput for an invalid prefix."""
    prefix = text.strip("/")
    if len(prefix) > _LONGEST:
        raise InvalidInput(f"urlPrefix: has {len(prefix)} characters; choose one of at most {_LONGEST}")
    for segment in prefix.split("/") if prefix else ():
        if segment in (".", "..") or _SEGMENT.fullmatch(segment) is None:
            raise InvalidInput(f"urlPrefix: {segment!r} is invalid; use letters, digits, . _ ~ - and single slashes")
    return prefix
