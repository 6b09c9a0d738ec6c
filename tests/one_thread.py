"""The first pytest plugin: limits numerical libraries to one thread, as in the tuner's process.

Several threads slow down small matrices, more so with parallel tests. The libraries read the setting when they are
loaded, which a later plugin does.
"""

from __future__ import annotations

import os

for _library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")
