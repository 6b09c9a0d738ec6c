"""NNI's REST API with 1,000 and 10,000 trials in the store, ours and NNI's own, over one kept-alive connection."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.benchmarks import filling, floors, lite, subject, upstream
from tests.benchmarks.latency import Latencies, Reader, measure
from tests.benchmarks.table import FLOOR, NNI, Table, at_least, at_most
from tests.live_daemon import Daemon

_SIZES = (1_000, 10_000)
_ASKED = 40
#: Number of requests with small answers.
_ASKED_SMALL = 2_000
#: Seconds between other calls during repeated requests for a big answer.
_OTHERS_EVERY_S = 0.02
_TRIALS, _AT_ONCE = 200, 8
_REPEATS = 3
#: Seconds between requests for all trials by open pages.
_LOOK_EVERY_S = 0.2

#: Port and path of one endpoint.
Place = Callable[[str], tuple[int, str]]


def check_status(folder: Path, table: Table) -> None:
    """The most frequent small call, with one running trial; both managers run alternately."""
    config, ours, theirs = subject.config(trials=1, at_once=1, command="sleep 1000"), [], []
    port = upstream.free_port()
    with upstream.Nni(folder / "nni") as nni, subject.running(folder / "ours", "--port", str(port)) as daemon:
        nni.create(config)
        id_ = daemon.create(config, folder / "ours" / "code")
        daemon.wait_for(id_, lambda state: state["counts"].get("RUNNING"))
        nni.wait_for(lambda: nni.get("trial-jobs"))
        for _ in range(_REPEATS):
            theirs.append(measure(*_nnis(nni)("check-status"), _ASKED_SMALL).p50)
            ours.append(measure(*_ours(port, id_)("check-status"), _ASKED_SMALL).p50)
        daemon.call("POST", f"/experiments/{id_}/stop")
        closed = [measure(*_ours(port, id_)("check-status"), _ASKED_SMALL).p50 for _ in range(_REPEATS)]
    table.row("`check-status` p50, ms", ours, at_most(1.0, NNI), nni=theirs)
    table.row("`check-status` p50, ms, stopped experiment", closed, at_most(1.0, NNI), nni=theirs)


def measure_all(folder: Path, table: Table) -> None:
    theirs = {size: _nni(folder / f"nni-{size}", size) for size in _SIZES}
    with _filled(folder / "ours") as (daemon, port, ids):
        for size in _SIZES:
            found = _measure(_ours(port, ids[size]))
            _rows(table, size, found, theirs[size])
        _full_rate(folder / "rate", daemon, port, ids[_SIZES[-1]], table)
        for size in _SIZES:
            daemon.call("POST", f"/experiments/{ids[size]}/stop")
            daemon.call("POST", "/experiments/view", json={"id": ids[size]})
            _rows(table, size, _measure(_ours(port, ids[size])), theirs[size], " viewed")


def _rows(table: Table, size: int, ours: dict[str, Latencies], nni: dict[str, Latencies], how: str = "") -> None:
    """`how`: the experiment is viewed, or running; NNI's is viewed in both cases."""
    trials, metrics = "trial-jobs", "metric-data"
    count = f"{size:,}{how} trials"
    table.row(f"`{trials}` p50, ms, {count}", ours[trials].p50, at_most(0.1, NNI), nni=nni[trials].p50)
    table.row(f"other calls' p98 meanwhile, ms, {count}", ours["others"].p98, at_most(20), nni=nni["others"].p98)
    if size == _SIZES[-1]:
        name = f"`{metrics}` p50, ms, {count} × {filling.INTERMEDIATES + 1}"
        table.row(name, ours[metrics].p50, at_most(0.2, NNI), nni=nni[metrics].p50)


def _measure(place: Place) -> dict[str, Latencies]:
    found = {name: measure(*place(name), _ASKED) for name in ("trial-jobs", "metric-data")}
    with Reader(*place("check-status"), every_s=_OTHERS_EVERY_S) as others:
        measure(*place("trial-jobs"), _ASKED)
    return {**found, "others": others.latencies}


def _full_rate(folder: Path, daemon: Daemon, port: int, id_: str, table: Table) -> None:
    """Reading another experiment's trials while all trials of the big one are read; the floor has the same reader."""
    ours, bare = [], []
    with Reader(*_ours(port, id_)("trial-jobs"), every_s=_LOOK_EVERY_S):
        for repeat in range(_REPEATS):
            lite.write(folder / str(repeat))
            bare.append(floors.plain_loop(folder / str(repeat), _TRIALS, _AT_ONCE).trials_per_s)
            ours.append(_rate(daemon, folder / str(repeat)))
    name = (
        f"lite trials/s, {_AT_ONCE} at a time, while {_SIZES[-1]:,} trials are read {1 / _LOOK_EVERY_S:.0f} × a second"
    )
    table.row(name, ours, at_least(0.6, FLOOR), floor=bare)


def _rate(daemon: Daemon, code: Path) -> float:
    id_ = daemon.create(subject.config(trials=_TRIALS, at_once=_AT_ONCE), code)
    daemon.wait(id_, "DONE", timeout_s=120)
    ((first, last),) = daemon.rows(id_, "SELECT min(created_ms), max(ended_ms) FROM trials")
    return _TRIALS / ((last - first) / 1000)


@contextmanager
def _filled(folder: Path) -> Iterator[tuple[Daemon, int, dict[int, str]]]:
    """(daemon, port of its service, number of trials → experiment)."""
    with subject.running(folder) as daemon:
        ids = {size: daemon.create(subject.config(trials=1, at_once=1), folder / "code") for size in _SIZES}
        for id_ in ids.values():
            daemon.wait(id_, "DONE")
        daemon.terminate()
        for size, id_ in ids.items():
            filling.fill(daemon.data / id_ / "db" / "nni.sqlite", id_, size - 1, _now_ms())
        port = upstream.free_port()
        daemon.start("--port", str(port))
        yield daemon, port, ids


def _ours(port: int, id_: str) -> Place:
    return lambda name: (port, f"/experiments/{id_}/api/v1/nni/{name}")


def _nnis(nni: upstream.Nni) -> Place:
    return lambda name: (nni.port, f"/api/v1/nni/{name}")


def _nni(folder: Path, size: int) -> dict[str, Latencies]:
    with upstream.Nni(folder) as nni:
        nni.create(subject.config(trials=1, at_once=1, command=lite.NNI_COMMAND))
        nni.wait("DONE")
        id_, database = nni.id, nni.database
        nni.stop()
        filling.fill_nni(database, size - 1, _now_ms())
        nni.view(id_)
        assert len(nni.get("trial-jobs")) == size
        return _measure(_nnis(nni))


def _now_ms() -> int:
    return int(time.time() * 1000)
