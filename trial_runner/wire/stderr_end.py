"""The end of a failed command's standard error for reports."""

from trial_runner import protocol
from trial_runner.wire import failure_cause, foreign_files

#: Number of bytes at the end of the file in which the cause is searched.
_LOOKED_AT = 64 * 1024


def read(folder: foreign_files.Folder) -> str:
    """At most `protocol.MAX_STDERR_TAIL` bytes from the file's end, with the cause; empty if it is unreadable."""
    data = foreign_files.tail(folder, protocol.STDERR_FILE, _LOOKED_AT)
    return failure_cause.excerpt(data.decode("utf-8", "replace"), protocol.MAX_STDERR_TAIL)
