"""The refusal of an unsupported Python. This file must be valid in any Python 3, and in 2.7."""

import sys


def check():  # type: () -> None
    """Ends the process with a message if this Python is too old. Call it before all other imports."""
    if sys.version_info < (3, 7):
        sys.stderr.write(
            "trial_runner: this is Python %d.%d, but trials need Python 3.7 or newer: use an image that has it, or put"
            " a newer python3 first on the PATH.\n" % sys.version_info[:2]
        )
        sys.exit(64)  # protocol.EXIT_USAGE
