"""Makes the roots with other releases of Slurm than this machine's own: `python -m tests.fakes.slurm`, as root."""

from __future__ import annotations

from tests.fakes.slurm.installation import SUITES, make_root, root_of

for version in SUITES:
    make_root(version)
    print(f"Slurm {version}: {root_of(version)}")
