"""The refusal of a Python that is too old for the rest of this package. Any Python 3, and 2.7, may read this file."""

import sys


def check():  # type: () -> None
    """Ends the process where nothing else here would work. To be called before anything else is imported."""
    if sys.version_info < (3, 7):
        sys.stderr.write(
            "trial_runner: this is Python %d.%d, and trials need Python 3.7 or newer beside them: use an image that has"
            " it, or put a newer python3 first on the PATH.\n" % sys.version_info[:2]
        )
        sys.exit(64)  # protocol.EXIT_USAGE
