"""Record the order of tests, so that a failure that depends on it can be repeated.

The order is random and workers take tests as they come, so the seed alone does not determine what ran before a failure.
The tests of a worker up to its last failure are stored, and the last lines contain the command that repeats them.
"""

from __future__ import annotations

from collections import defaultdict

import pytest

#: Folder of the stored orders, below pytest's cache.
_FOLDER = ".pytest_cache/order"


class Order:
    """The order of a whole run, in the process that reports results."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        #: By worker: tests in their order.
        self._ran: dict[str, list[str]] = defaultdict(list)
        #: By worker: number of tests started at its last failure.
        self._failed_at: dict[str, int] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        worker = str(getattr(report, "worker_id", "main"))
        ran = self._ran[worker]
        if ran[-1:] != [report.nodeid]:  # a test that ended its worker has no setup report
            ran.append(report.nodeid)
        if report.failed:
            self._failed_at[worker] = len(ran)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        # both options exist only with pytest-randomly
        seed = self._config.getoption("randomly_seed", None)
        if seed is None or not self._config.getoption("randomly_reorganize", True):
            return  # the order of the files or of the command line
        terminalreporter.write_line(f"order of the tests: --randomly-seed={seed}")
        for worker, count in sorted(self._failed_at.items()):
            again = self._again(worker, count, seed)
            terminalreporter.write_line(f"what {worker} ran up to its last failure, once more: {again}")

    def _again(self, worker: str, count: int, seed: object) -> str:
        path = self._config.rootpath / _FOLDER / worker
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{nodeid}\n" for nodeid in self._ran[worker][:count]))
        shown = path.relative_to(self._config.rootpath)
        return f"python -m pytest --randomly-seed={seed} --randomly-dont-reorganize @{shown}"
