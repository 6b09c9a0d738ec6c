"""A request that is answered with an error, and which errors of the system mean *try again*."""

import errno

from trial_runner import protocol

#: Conditions that pass without anybody changing the request.
_PASSING = frozenset(
    {
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EROFS,
        errno.EACCES,
        errno.EPERM,
        errno.EMFILE,
        errno.ENFILE,
        errno.EAGAIN,
        errno.ENOMEM,
        errno.EIO,
    }
)


class Refusal(Exception):
    """The answer to a request is an error of this kind (see `trial_runner.protocol`) and with this sentence."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


def system_refusal(error: OSError, attempted: str) -> Refusal:
    """`attempted` is the beginning of a sentence, such as ``Starting job x``."""
    is_passing = error.errno in _PASSING
    advice = "It can be tried again when that has changed." if is_passing else "Trying again will not help."
    place = " ({})".format(error.filename) if error.filename else ""
    message = "{} failed: {}{}. {}".format(attempted, error.strerror or error, place, advice)
    return Refusal(protocol.UNAVAILABLE if is_passing else protocol.REJECTED, message)
