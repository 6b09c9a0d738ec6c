"""Send generated calls to a new daemon and print the findings: ``python -m tests.fuzz --calls 10000``.

Exit code 0 without findings, else 1. `--calls` is the number per group of routes.
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.fuzz.run import run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--calls", type=int, default=1000, help="calls for each group of routes (default: %(default)s)")
    parser.add_argument("--groups", nargs="*", help="only these groups")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="for the same calls again")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    found = 0
    for report in run(options.calls, options.seed, options.groups):
        print(report, flush=True)
        found += len(report.problems)
    print("nothing was found" if not found else f"{found} kinds of problems were found")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
