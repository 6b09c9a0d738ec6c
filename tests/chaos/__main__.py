"""Run it as root and print the findings: ``python -m tests.chaos --trials 1600 --seed 7``.

``python -m tests.chaos files --seeds 1-200`` breaks files instead, and needs no root.

Exit code 0 without findings, else 1.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.chaos.files import run as files
from tests.chaos.run import prepared


def main() -> int:
    if sys.argv[1:2] == ["files"]:
        return files.main(sys.argv[2:])
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--trials", type=int, default=1600, help="how many (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="for the same faults again")
    parser.add_argument("--limit", type=float, default=3600, help="seconds after which nothing breaks any more")
    parser.add_argument("--network", type=int, default=84, help="10.219.NETWORK.0/24 (default: %(default)s)")
    parser.add_argument("--folder", type=Path, help="kept; default: a new one, which goes when nothing was found")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    print(f"seed {options.seed}, folder {folder}", flush=True)
    with prepared(
        folder,
        trials=options.trials,
        seed=options.seed,
        limit_s=options.limit,
        network=options.network,
        say=lambda line: print(line, flush=True),
    ) as run:
        found = run.go()
    print(f"seed {options.seed}: {options.trials} trials in {run.took_s:.0f} s under {run.broken.total()} faults")
    print(", ".join(f"{kind} {number}" for kind, number in sorted(run.broken.items())))
    print(found)
    if options.folder is None and not found.faults:
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if found.faults else 0


if __name__ == "__main__":
    sys.exit(main())
