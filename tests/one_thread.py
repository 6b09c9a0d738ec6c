"""A plugin of pytest, and the first one: numerical libraries compute with one thread, as in the tuner's process.

Several threads for small matrices wait for each other, the more so beside other tests. The libraries read it when they
are loaded, which another plugin does.
"""

from __future__ import annotations

import os

for _library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")
