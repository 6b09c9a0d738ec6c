"""The last descriptors of this process, kept for looking: at processes, and at what jobs reported.

Every job and every process that is waited for holds one for as long as it lives. If those took all there are, the end
of a job would be told without its last results, and what it left running would not be seen.
"""

import errno
import os
import resource

#: More than are ever open for a moment at a time.
RESERVED = 16


def kept_free(descriptor: int) -> int:
    """The descriptor itself. Raises OSError (EMFILE), having closed it, when it is one of the last."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY or descriptor < limit - RESERVED:
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EMFILE, "Too many open files")


def require_one(example: int) -> None:
    """Raises OSError (EMFILE) when none is to be had but the last. `example`: any open descriptor."""
    os.close(kept_free(os.dup(example)))
