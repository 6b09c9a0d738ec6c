"""The parameter record that a trial was started with. Standard library only, Python 3.7."""

from __future__ import annotations

import os


def read_record() -> str:
    """JSON text of ``parameter.cfg`` in ``$NNI_SYS_DIR``; it is there before the trial starts.

    Raises RuntimeError when it is not: then this is no trial, or no longer one.
    """
    folder = os.environ.get("NNI_SYS_DIR")
    if not folder:
        raise RuntimeError(
            "This trial has no parameters: NNI_PLATFORM is set but NNI_SYS_DIR is not. Start the program as a trial, "
            "or unset NNI_PLATFORM to run it by itself."
        )
    path = os.path.join(folder, "parameter.cfg")
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        raise RuntimeError(
            "This trial's parameters cannot be read from {} ({}). Is its folder still there and on this "
            "machine?".format(path, error.strerror)
        ) from error
