"""The child process: started by a query, limited in time, restarted after its death, ended with the daemon."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from subprocess import PIPE
from typing import Any

import psutil
import pytest

from nni_manager.analysis import service, worker
from nni_manager.analysis.query import Query
from nni_manager.analysis.service import Analysis
from nni_manager.domain.errors import AnalysisUnavailable, InvalidInput, NotFound, StoreCorrupt
from tests.analysis.filled import Filled

pytestmark = pytest.mark.unit


@asynccontextmanager
async def analysing(experiment: Filled, **options: Any) -> AsyncIterator[Analysis]:
    async def located(_id: str) -> tuple[Path, str]:
        return experiment.path, str(experiment.revision)

    analysis = Analysis(located, **options)
    try:
        yield analysis
    finally:
        await analysis.close()


def test_questions_without_parameters_are_answered_first() -> None:
    """Parameters take longest to read: the first chart need not wait for them. Curves are read for each filter."""
    ranks = {
        name: worker.rank({"question": name, "query": ""}) for name in ("results", "curves", "columns", "parallel")
    }
    assert ranks == {"results": 0, "curves": 1, "columns": 2, "parallel": 2}
    assert worker.rank({"question": "results", "query": "p.lr=0..1"}) == 2
    assert worker.rank({"question": "curves", "query": "p.lr=0..1"}) == 3
    assert worker.rank({"question": "columns", "query": "top=many"}) == 0


async def total(analysis: Analysis) -> int:
    return int(json.loads((await analysis.ask("exp1", "trials", Query())).text)["total"])


async def test_a_question_starts_the_process_and_close_ends_it(experiment: Filled) -> None:
    experiment.add(final=1.0)
    async with analysing(experiment) as analysis:
        assert analysis.pid is None
        assert await total(analysis) == 1
        pid = analysis.pid
        assert pid is not None
        experiment.add(final=2.0)
        assert await total(analysis) == 2 and analysis.pid == pid
    assert not psutil.pid_exists(pid)


def test_the_process_gives_way_to_other_sessions() -> None:
    """Its own priority counts only inside its session where Linux shares processors among sessions first."""
    lower = min(19, psutil.Process().nice() + 5)
    for has_session, niceness in ((True, lower), (False, _niceness("self"))):
        with _asked("columns", start_new_session=has_session) as process:
            assert psutil.Process(process.pid).nice() == lower
            assert _niceness(process.pid) in (niceness, None)


def test_first_screen_is_answered_with_daemon_priority() -> None:
    """The reader of the page waits for it; nothing but the page asks so soon."""
    with _asked("results") as process:
        child = psutil.Process(process.pid)
        assert child.nice() == psutil.Process().nice()
        while child.nice() == psutil.Process().nice():  # it does without another question, too
            time.sleep(0.05)


def test_busy_page_has_high_priority_only_for_a_while() -> None:
    """As that of an experiment at work does."""
    with _asked("results") as process:
        child, first = psutil.Process(process.pid), psutil.Process().nice()
        while child.nice() == first:
            _ask(process, "results")
            time.sleep(0.05)


@contextmanager
def _asked(question: str, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """The process once it has answered a question about a database that is not there."""
    command = [sys.executable, "-m", "nni_manager.analysis.worker"]
    with subprocess.Popen(command, stdin=PIPE, stdout=PIPE, **options) as process:
        _ask(process, question)
        yield process
        process.kill()


def _ask(process: subprocess.Popen[bytes], question: str) -> None:
    assert process.stdin is not None and process.stdout is not None
    request = {"id": 1, "question": question, "query": "", "path": "/nowhere", "revision": ""}
    process.stdin.write(json.dumps(request).encode() + b"\n")
    process.stdin.flush()
    header = json.loads(process.stdout.readline())
    assert "refused" in header and len(process.stdout.read(header["bytes"])) == header["bytes"]


def _niceness(process: int | str) -> int | None:
    """Of its session; None: the kernel shares among processes alone, or the session is that of the first process, whose
    file is empty."""
    group = Path(f"/proc/{process}/autogroup")
    words = group.read_text().split() if group.exists() else []
    return int(words[-1]) if words else None


async def test_a_page_has_the_process_started_before_its_charts_ask(experiment: Filled) -> None:
    asked = asyncio.Event()

    async def located(_id: str) -> tuple[Path, str]:
        asked.set()
        return experiment.path, str(experiment.revision)

    analysis = Analysis(located)
    try:
        analysis.prepare("exp1")
        await asyncio.wait_for(asked.wait(), 30)
        await analysis.ask("exp1", "columns", Query())  # shares what is under way
        pid = analysis.pid
        assert pid is not None
        analysis.prepare("exp1")
        assert await total(analysis) == 0 and analysis.pid == pid
    finally:
        await analysis.close()


async def test_what_cannot_be_prepared_is_told_to_the_question(experiment: Filled) -> None:
    async def located(_id: str) -> tuple[Path, str]:
        raise NotFound("cannot find experiment")

    analysis = Analysis(located)
    analysis.prepare("exp1")
    with pytest.raises(NotFound):
        await analysis.ask("exp1", "trials", Query())
    await analysis.close()
    assert analysis.pid is None


async def test_same_questions_of_one_revision_are_computed_once(experiment: Filled) -> None:
    async with analysing(experiment) as analysis:
        first, second = await asyncio.gather(*(analysis.ask("exp1", "trials", Query()) for _ in range(2)))
        assert first is second is await analysis.ask("exp1", "trials", Query())


async def test_columns_are_computed_once_for_all_filters(experiment: Filled) -> None:
    experiment.add({"rate": 0.5}, final=1.0)
    async with analysing(experiment) as analysis:
        filtered = Query.parse([("page", "2"), ("p.rate", "0.9..1")])
        assert await analysis.ask("exp1", "columns", Query()) is await analysis.ask("exp1", "columns", filtered)
        assert (await analysis.ask("exp1", "trials", Query())).text != (
            await analysis.ask("exp1", "trials", filtered)
        ).text


async def test_a_client_that_goes_away_takes_no_answer_from_others(experiment: Filled) -> None:
    async with analysing(experiment) as analysis:
        gone = asyncio.create_task(analysis.ask("exp1", "trials", Query()))
        stays = asyncio.create_task(analysis.ask("exp1", "trials", Query()))
        await asyncio.sleep(0)
        gone.cancel()
        assert json.loads((await stays).text)["total"] == 0


async def test_killed_process_refuses_waiting_queries_and_restarts(experiment: Filled) -> None:
    async with analysing(experiment) as analysis:
        await total(analysis)
        pid = analysis.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        experiment.add(final=1.0)
        asyncio.get_running_loop().call_later(0.05, os.kill, pid, signal.SIGKILL)  # whether asked by then or not
        with pytest.raises(AnalysisUnavailable, match=r"ended \("):
            await total(analysis)
        assert await total(analysis) == 1 and analysis.pid != pid


async def test_an_answer_that_takes_too_long_is_given_up(experiment: Filled) -> None:
    async with analysing(experiment) as analysis:
        await total(analysis)
        analysis._timeout_s = 0.05
        pid = analysis.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        experiment.add(final=1.0)
        with pytest.raises(AnalysisUnavailable, match="took longer"):
            await total(analysis)
        analysis._timeout_s = 30
        assert await total(analysis) == 1


async def test_idle_process_is_ended_and_started_again(experiment: Filled) -> None:
    async with analysing(experiment, idle_s=0.01) as analysis:
        await total(analysis)
        assert analysis._worker is not None
        async with asyncio.timeout(30):
            await analysis._worker._process.wait()
        assert analysis.pid is None
        experiment.add(final=1.0)
        assert await total(analysis) == 1


async def test_damaged_database_is_reported_and_repaired_one_read(experiment: Filled) -> None:
    experiment.add(final=1.0)
    experiment.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    whole = experiment.path.read_bytes()
    async with analysing(experiment) as analysis:
        experiment.path.write_bytes(b"nonsense" * 4096)
        with pytest.raises(AnalysisUnavailable, match=r"nni\.sqlite cannot be read"):
            await total(analysis)
        experiment.path.write_bytes(whole)
        assert await total(analysis) == 1


async def test_refusals_keep_their_kind(experiment: Filled) -> None:
    async with analysing(experiment) as analysis:
        with pytest.raises(InvalidInput, match=r"p\.none"):
            await analysis.ask("exp1", "trials", Query.parse([("p.none", "1..2")]))
        with pytest.raises(NotFound, match="unknown query"):
            await analysis.ask("exp1", "anything", Query())


async def test_error_is_logged_and_process_continues(experiment: Filled, caplog: pytest.LogCaptureFixture) -> None:
    async with analysing(experiment) as analysis:
        await total(analysis)
        experiment.connection.execute("ALTER TABLE trials RENAME COLUMN last_words TO gone")
        experiment.revision += 1
        pid = analysis.pid
        with pytest.raises(AnalysisUnavailable, match="internal error of the manager"):
            await total(analysis)
        assert "last_words" in caplog.text and analysis.pid == pid


async def test_a_database_that_cannot_be_located_is_unavailable() -> None:
    async def located(_id: str) -> tuple[Path, str]:
        raise StoreCorrupt("the database x cannot be read; restore it from a backup")

    analysis = Analysis(located)
    with pytest.raises(AnalysisUnavailable, match="restore it"):
        await analysis.ask("exp1", "trials", Query())
    await analysis.close()
    with pytest.raises(AnalysisUnavailable, match="restore it"):
        await analysis.revision("exp1")


async def test_a_program_that_cannot_be_started(experiment: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service.sys, "executable", "/nowhere/python")
    async with analysing(experiment) as analysis:
        with pytest.raises(AnalysisUnavailable, match="cannot be started"):
            await total(analysis)


def test_process_ends_with_parent_even_during_an_answer() -> None:
    """As when the daemon is killed: only its end of the pipe is gone."""
    busy = "import nni_manager.analysis.worker as w; w.respond = lambda *_: [0 for _ in iter(int, 1)]; w.main()"
    with subprocess.Popen([sys.executable, "-c", busy], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        child.stdin.write(b'{"question": "results", "query": ""}\n')
        child.stdin.flush()
        child.stdin.close()
        assert child.wait(timeout=50) == 0


def test_the_daemon_s_side_imports_no_numpy() -> None:
    code = "import sys, nni_manager.app.serve; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
