"""What the same trials cost without us: a plain asyncio loop, and Optuna's own loop, spawning the same command."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from tests.benchmarks import lite


def plain_loop(folder: Path, trials: int, at_once: int) -> float:
    """Trials a second."""
    return asyncio.run(_plain_loop(folder, trials, at_once))


async def _plain_loop(folder: Path, trials: int, at_once: int) -> float:
    numbers = iter(range(trials))
    started = time.perf_counter()

    async def worker() -> None:
        for number in numbers:
            environment = _prepare(folder / str(number))
            process = await asyncio.create_subprocess_exec("/bin/sh", "-c", lite.COMMAND, cwd=folder, env=environment)
            assert await process.wait() == 0

    await asyncio.gather(*(worker() for _ in range(at_once)))
    return trials / (time.perf_counter() - started)


def optuna_loop(folder: Path, trials: int, at_once: int, *, storage: str | None) -> float:
    """Trials a second of `study.optimize` with a random sampler; runs in its own process. `storage`: a URL or None."""
    folder.mkdir(parents=True)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", __file__, str(folder), str(trials), str(at_once), storage or ""],
        check=True, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": os.getcwd()},
    )  # fmt: skip
    return float(done.stdout)


def _optuna(folder: Path, trials: int, at_once: int, storage: str) -> float:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)

    def objective(trial: optuna.Trial) -> float:
        place = folder / str(trial.number)
        environment = _prepare(place, trial.suggest_float("x", 0, 1))
        subprocess.run(["/bin/sh", "-c", lite.COMMAND], cwd=folder, env=environment, check=True)
        return float(json.loads((place / "outbox.jsonl").read_text())["value"])

    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(), storage=storage or None)
    started = time.perf_counter()
    study.optimize(objective, n_trials=trials, n_jobs=at_once)
    return trials / (time.perf_counter() - started)


def _prepare(place: Path, x: float = 0.5) -> dict[str, str]:
    place.mkdir()
    (place / "parameter.cfg").write_text(json.dumps({"parameters": {"x": x}}))
    return {**os.environ, "NNI_SYS_DIR": str(place), "NNI_OUTBOX": str(place / "outbox.jsonl")}


if __name__ == "__main__":
    where = Path(sys.argv[1])
    lite.write(where)
    print(_optuna(where, int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]))
