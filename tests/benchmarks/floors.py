"""Cost of the same trials without nni_manager: a plain asyncio loop, and Optuna's loop, with the same command."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks import lite
from trial_runner import protocol

STAND_IN = Path(protocol.__file__).with_name("stand_in")


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    trials_per_s: float
    #: CPU milliseconds of the loop's own process for each trial.
    cpu_ms: float


def plain_loop(folder: Path, trials: int, at_once: int, command: str = lite.COMMAND) -> Floor:
    """Spawn and wait, without storing anything."""
    return asyncio.run(_plain_loop(folder, trials, at_once, command))


async def _plain_loop(folder: Path, trials: int, at_once: int, command: str) -> Floor:
    numbers = iter(range(trials))
    started, cpu_s = time.perf_counter(), time.process_time()

    async def worker() -> None:
        for number in numbers:
            environment = _prepare(folder / str(number))
            process = await asyncio.create_subprocess_exec("/bin/sh", "-c", command, cwd=folder, env=environment)
            assert await process.wait() == 0

    await asyncio.gather(*(worker() for _ in range(at_once)))
    return Floor(
        trials_per_s=trials / (time.perf_counter() - started), cpu_ms=(time.process_time() - cpu_s) / trials * 1000
    )


def optuna_loop(folder: Path, trials: int, at_once: int, *, storage: str | None) -> float:
    """Trials a second of `study.optimize` with a random sampler; runs in its own process. `storage`: a URL or None."""
    folder.mkdir(parents=True)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", __file__, str(folder), str(trials), str(at_once), storage or ""],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )
    return float(done.stdout)


def _optuna(folder: Path, trials: int, at_once: int, storage: str) -> float:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)

    def objective(trial: optuna.Trial) -> float:
        place = folder / str(trial.number)
        environment = _prepare(place, trial.suggest_float("x", 0, 1))
        subprocess.run(["/bin/sh", "-c", lite.COMMAND], cwd=folder, env=environment, check=True)
        return float(json.loads((place / protocol.MAIN_OUTBOX).read_text())["value"])

    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(), storage=storage or None)
    started = time.perf_counter()
    study.optimize(objective, n_trials=trials, n_jobs=at_once)
    return trials / (time.perf_counter() - started)


def _prepare(place: Path, x: float = 0.5) -> dict[str, str]:
    """Files and variables of a trial: its parameters, and the variables that SDKs need."""
    (place / protocol.OUTBOX_FOLDER).mkdir(parents=True)
    record = {"parameter_id": 0, "parameter_source": "algorithm", "parameters": {"x": x}, "parameter_index": 0}
    (place / protocol.PARAMETER_FILE).write_text(json.dumps(record))
    return {
        **os.environ,
        "PYTHONPATH": str(STAND_IN),
        protocol.ENV_PLATFORM: "local",
        protocol.ENV_EXPERIMENT_ID: "floor",
        protocol.ENV_TRIAL_ID: "abcde",
        protocol.ENV_SEQUENCE_ID: place.name,
        protocol.ENV_SYSTEM_DIR: str(place),
        protocol.ENV_OUTPUT_DIR: str(place),
        protocol.ENV_CODE_DIR: str(place.parent),
        protocol.ENV_OUTBOX: str(place / protocol.MAIN_OUTBOX),
        protocol.ENV_COMMAND_CHANNEL: protocol.COMMAND_CHANNEL,
    }


if __name__ == "__main__":
    where = Path(sys.argv[1])
    lite.write(where)
    print(_optuna(where, int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]))
