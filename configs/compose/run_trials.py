"""Runs what `scripted` with ``launch: external`` writes down: one trial runner a job, each in a fresh folder.

    python run_trials.py DATA_DIRECTORY [AT_ONCE]

Standard library only. Plays the cluster of `docker-compose.yml`; a real one would start a container for each job.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def main(data: Path, at_once: int) -> None:
    running = []
    while True:
        running = [process for process in running if process.poll() is None]
        for start in sorted(data.glob("*/scripted/*/start.json"))[: at_once - len(running)]:
            running += _start(start)
        time.sleep(0.5)


def _start(start: Path) -> list:
    """Claims the job by renaming its file: of several of us, one succeeds."""
    started = start.with_name("started.json")
    try:
        start.rename(started)
    except FileNotFoundError:
        return []
    job = json.loads(started.read_text())
    environment = {**_environment(Path(job["environmentFile"])), "PATH": os.environ["PATH"]}
    print("starting", start.parent.name, flush=True)
    return [subprocess.Popen(job["command"], env=environment, cwd=tempfile.mkdtemp(prefix="trial-"))]


def _environment(file: Path) -> dict:
    return dict(line.split("=", 1) for line in file.read_text().splitlines() if "=" in line)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 2)
