"""Runs all groups in order with one daemon, and checks that daemon at the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import httpx

from tests.fuzz import described, malformed, nni_api
from tests.fuzz.report import Report
from tests.fuzz.target import Target, client, target

#: Allowed total growth of the daemon's memory in bytes.
_GROWTH = 200 * 2**20
#: Log line before the traceback of a custom algorithm, which is expected.
_USERS_FAULT = "the tuner or assessor failed"


def run(calls: int, seed: int, only: Sequence[str] | None = None) -> Iterator[Report]:
    """`calls`: per group. The last report is about the daemon."""
    with target() as aim:
        before = aim.process.memory_info().rss
        for group, operations in described.groups(aim).items():
            if not only or group in only:
                yield described.shoot(aim, group, operations, calls, seed)
        if not only or "nni" in only:
            yield nni_api.shoot(aim, calls, seed)
        if not only or "malformed" in only:
            yield malformed.shoot(aim, calls, seed)
        yield _daemon(aim, before)


def _daemon(aim: Target, before: int) -> Report:
    """Check that the daemon answers, has not grown too much, and has logged no internal error."""
    report = Report("afterwards")
    try:
        with client(aim, 5) as connection:
            answer = connection.get("/readyz")
            report.take("GET /readyz", answer.status_code, answer.text, answer.elapsed.total_seconds())
    except httpx.HTTPError as error:
        report.complain("no answer", repr(error))
    growth = aim.process.memory_info().rss - before
    if growth > _GROWTH:
        report.complain("memory", f"{growth / 2**20:.0f} MiB more than before")
    for chunk in (aim.daemon.data.parent / "daemon.log").read_text(errors="replace").split("\n["):
        if "Traceback" in chunk and _USERS_FAULT not in chunk:
            report.complain("traceback in the log", chunk[:300] + " … " + chunk[-700:])
    return report
