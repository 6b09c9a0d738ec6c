"""Lite trials per second if the tuner knows 10,000 results: Auto compared with Random."""

from __future__ import annotations

from pathlib import Path

from tests.benchmarks import lite, subject
from tests.benchmarks.table import FLOOR, Table, at_least

KNOWN = 10_000
REPEATS = 3
TRIALS, _MEASURED, _AT_ONCE = 500, 200, 8


def measure(folder: Path, table: Table) -> None:
    autos, randoms = [], []
    for repeat in range(REPEATS):  # in turns: the machine may have other load
        autos.append(rate(folder / f"auto-{repeat}", "Auto"))
        randoms.append(rate(folder / f"random-{repeat}", "Random"))
    name = f"lite trials/s with {KNOWN:,} results, Auto, {_AT_ONCE} at a time; floor: Random"
    table.row(name, autos, at_least(0.8, FLOOR), floor=randoms)


def rate(folder: Path, tuner: str) -> float:
    """Rate of the last trials, when the tuner has read all results."""
    lite.write(folder / "code")
    config = subject.config(trials=TRIALS, at_once=_AT_ONCE)
    config["tuner"] = {"name": tuner, "classArgs": {"optimize_mode": "minimize"}}
    with subject.running(folder) as daemon:
        id_ = daemon.create(config, folder / "code")
        known = [{"parameter": {"x": number / KNOWN}, "value": number / KNOWN} for number in range(KNOWN)]
        daemon.call("POST", f"/experiments/{id_}/import", json=known)
        ended = daemon.status(id_)["counts"].get("SUCCEEDED", 0)
        assert ended < TRIALS - _MEASURED, "the import took too long"
        daemon.wait(id_, "DONE", timeout_s=600)
        ((first, last),) = daemon.rows(
            id_,
            "SELECT min(created_ms), max(ended_ms) FROM"
            f" (SELECT created_ms, ended_ms FROM trials ORDER BY created_ms DESC LIMIT {_MEASURED})",
        )
    return _MEASURED / ((last - first) / 1000)
