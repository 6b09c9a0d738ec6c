"""In which order tests ran, so that a failure that hangs on it can be repeated.

The order is random, and the workers that share the tests take them as they come: a seed does not tell what ran before
a failure. So what a worker ran up to its last failure is written down, and the closing lines say how to run that again.
"""

from __future__ import annotations

from collections import defaultdict

import pytest

#: Below the folder of all.
_FOLDER = ".pytest_cache/order"


class Order:
    """Of a whole run; lives in the process that shows the results."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        #: By worker, in the order in which they ran.
        self._ran: dict[str, list[str]] = defaultdict(list)
        #: By worker: how many had begun when its last failure was reported.
        self._failed_at: dict[str, int] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        worker = str(getattr(report, "worker_id", "main"))
        ran = self._ran[worker]
        if ran[-1:] != [report.nodeid]:  # of one that ended its worker there is no report of its setup
            ran.append(report.nodeid)
        if report.failed:
            self._failed_at[worker] = len(ran)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        # both options are there only with pytest-randomly
        seed = self._config.getoption("randomly_seed", None)
        if seed is None or not self._config.getoption("randomly_reorganize", True):
            return  # it is that of the files, or that of the command line
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
