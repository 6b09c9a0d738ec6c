"""Cost of one open page for each process while its experiment has fifty results per second:

`python -m tests.benchmarks.pages.cost [TRIALS…]`, where TRIALS is the number of earlier trials; default: 0.

The trials mostly sleep, so CPU time is compared, not the rate. It can be measured on a busy machine.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from pathlib import Path

import psutil

from tests.benchmarks import analysis, subject, upstream
from tests.benchmarks.pages import chromium, filled
from tests.live_daemon import Daemon

#: Duration with which eight concurrent trials give fifty results per second.
_COMMAND = 'echo "{\\"type\\": \\"final\\", \\"value\\": 0.$NNI_TRIAL_SEQ_ID}" >> "$NNI_OUTBOX"; sleep 0.11'
_AT_ONCE = 8
_SETTLE_S, _SECONDS = 5, 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trials", nargs="*", type=int, metavar="TRIALS", default=[0])
    histories = parser.parse_args().trials
    print("| Ended before | Page | results/s | per cent of a core, by process |\n|---|---|---|---|")
    for history in histories:
        with tempfile.TemporaryDirectory() as folder:
            _measure(Path(folder) / "cost", history)


def _measure(folder: Path, history: int) -> None:
    port = upstream.free_port()
    with subject.running(folder, "--port", str(port)) as daemon, chromium.browser() as browser:
        id_ = _begin(daemon, folder, history, port)
        url = f"http://127.0.0.1:{port}/experiments/{id_}"
        time.sleep(_SETTLE_S)
        _tell(history, "none", *_window(daemon, id_))
        for tab in ("", "/trials"):
            with chromium.tab(browser) as page:
                page.goto(url + tab)
                page.wait_for_timeout(_SETTLE_S * 1000)
                _tell(history, tab or "overview", *_window(daemon, id_))
        _tell(history, "none", *_window(daemon, id_))


def _begin(daemon: Daemon, folder: Path, history: int, port: int) -> str:
    """A running experiment with this number of ended trials."""
    config = {**subject.config(trials=1 if history else 100_000, at_once=_AT_ONCE, command=_COMMAND)}
    if not history:
        return daemon.create(config, folder / "code")
    id_ = daemon.create({**config, "searchSpace": analysis.space()}, folder / "code")
    daemon.wait(id_, "DONE")
    daemon.terminate()
    filled.fill(daemon.data / id_ / "db" / "nni.sqlite", id_, history)
    daemon.start("--port", str(port))
    daemon.call("POST", f"/experiments/{id_}/resume")
    daemon.call("PATCH", f"/experiments/{id_}", json={"maxTrialNumber": history + 100_000})
    daemon.wait_for(id_, lambda state: state["counts"].get("RUNNING"))
    return id_


def _window(daemon: Daemon, id: str) -> tuple[float, Counter[str]]:
    """(Results a second, per cent of a core of each process)."""
    ended, before, began = _ended(daemon, id), _cpu_s(daemon), time.monotonic()
    time.sleep(_SECONDS)
    after, seconds = _cpu_s(daemon), time.monotonic() - began
    spent: Counter[str] = Counter()
    for (name, pid), cpu_s in after.items():
        spent[name] += 100 * (cpu_s - before.get((name, pid), 0)) / seconds  # type: ignore[assignment]  # a float
    return (_ended(daemon, id) - ended) / seconds, spent


def _ended(daemon: Daemon, id: str) -> int:
    return int(daemon.rows(id, "SELECT count(*) FROM trials WHERE ended_ms IS NOT NULL")[0][0])


def _cpu_s(daemon: Daemon) -> dict[tuple[str, int], float]:
    """(Name, pid) → CPU seconds so far, including ended threads."""
    assert daemon.process is not None
    own = psutil.Process(daemon.process.pid)
    found = [("daemon", own), *chromium.processes()]
    found += [("analysis", one) for one in own.children() if "nni_manager.analysis.worker" in one.cmdline()]
    return {(name, process.pid): sum(process.cpu_times()[:2]) for name, process in found}


def _tell(history: int, page: str, rate: float, spent: Counter[str]) -> None:
    parts = ", ".join(f"{name} {share:.1f}" for name, share in sorted(spent.items()))
    print(f"| {history:,} | {page} | {rate:.1f} | {parts} |", flush=True)


if __name__ == "__main__":
    main()
