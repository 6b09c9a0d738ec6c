"""Real runners that the test starts in place of containers: without a listening daemon, and several for one job."""

from __future__ import annotations

import json
import socket
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.cluster import Cluster
from tests.acceptance.numbered import ENVIRONMENT
from tests.live_daemon import Daemon
from tests.waiting import until
from trial_runner import protocol

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(120)]

#: Query of the database, because no daemon runs.
_STORED = "SELECT data FROM metrics ORDER BY id"


class Container:
    """The only trial's runner, in a new folder below `place`. `variables`: in addition to those of the manager."""

    def __init__(self, cluster: Cluster, place: Path, **variables: str) -> None:
        self.folder = place / "nni"
        work = place / "work"
        work.mkdir(parents=True)
        told = cluster.environments[0]
        start = json.loads((cluster.files[0].with_name("started.json")).read_text())
        self.process = subprocess.Popen(
            start["command"],
            cwd=work,
            text=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**ENVIRONMENT, **told, protocol.ENV_SYSTEM_DIR: str(self.folder), **variables},
        )

    def __enter__(self) -> Container:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.communicate(timeout=20)

    def end(self) -> tuple[int, str]:
        """Wait for its end; returns (exit code, output)."""
        _, said = self.process.communicate(timeout=60)
        return self.process.returncode, said

    def outbox(self) -> list[Any]:
        """Empty until the command has started."""
        path = self.folder / protocol.MAIN_OUTBOX
        text = path.read_text() if path.exists() else ""
        return [json.loads(line)["value"] for line in text.splitlines()]

    def exit_word(self) -> Any:
        return json.loads((self.folder / protocol.EXIT_FILE).read_text())


def test_runner_without_a_daemon_ends_with_its_trials_exit_code(listening: Daemon, code: Path, tmp_path: Path) -> None:
    """It exits with its trial's exit code, and all results are on its disk, readable through a mount."""
    (tmp_path / "notes").mkdir()
    command = f"python3 numbered.py {tmp_path / 'notes'} 60 0.05 && exit 7"
    cluster = Cluster(listening, code, 1, trialCommand=command)
    cluster.start(0)
    with Container(cluster, tmp_path / "container", NNI_RUNNER_DRAIN_S="3") as container:
        listening.wait_for(cluster.id, lambda _: listening.results(cluster.id))
        listening.kill()
        exit_code, said = container.end()
    wrote = container.outbox()
    assert exit_code == 7 and wrote[:-1] == list(range(60)) and 0 < wrote[-1] < 1
    assert (container.exit_word()["exit_code"], container.exit_word()["signal"]) == (7, None)
    complaints = [line for line in said.splitlines() if line.startswith("trial_runner: ")]
    assert len(complaints) == 3 and "cannot be reached" in complaints[0] and complaints[0].endswith("; trying again")
    over = "trial_runner: Time ran out before all {} were delivered: the rest stays in the trial's folder."
    assert complaints[1:] == [over.format("results"), over.format("logs")]
    assert len(container.exit_word()["undelivered"]) == 2
    stored = [json.loads(data) for (data,) in listening.rows(cluster.id, _STORED)]
    assert 0 < len(stored) < 60 and stored == wrote[: len(stored)]


def test_one_of_several_processes_reports(listening: Daemon, code: Path, tmp_path: Path) -> None:
    """Results of the other processes are dropped, their logs are separate, and they end with the trial."""
    cluster = Cluster(listening, code, 1, trialCommand="python3 ranked.py")
    cluster.start(0)
    gate = tmp_path / "gate"
    with ExitStack() as stack:
        reporter, early, late = (
            stack.enter_context(
                Container(
                    cluster,
                    tmp_path / str(rank),
                    RANK=str(rank),
                    GATE=str(gate),
                    NNI_RUNNER_REPORTER="1" if rank == 0 else "0",
                    NNI_RUNNER_GRACE_S="0.5",
                )
            )
            for rank in range(3)
        )
        assert early.end()[0] == 5
        until(lambda: late.outbox() == [1002])
        assert cluster.trial(0)["endedMs"] is None, "how another one ended says nothing"
        gate.touch()
        assert reporter.end()[0] == 0
        listening.wait_for(cluster.id, lambda state: state["counts"].get("SUCCEEDED") == 1)
        assert late.end()[0] == 0
    values = [json.loads(result["result"]) for result in listening.results(cluster.id)]
    assert sorted(values, key=str) == sorted([{"default": n, "word": "it's"} for n in range(3)] + [100, 1000], key=str)
    assert [value for value in values if value != 1000] == [*({"default": n, "word": "it's"} for n in range(3)), 100]
    assert cluster.trial(0)["attempts"][0]["runnerExit"]["exitCode"] == 0
    logs = listening.data / cluster.id / "trials" / cluster.trial_id(0)
    assert (logs / "stdout").read_text().startswith("rank 0\n")
    assert (logs / f"stdout-{socket.gethostname()}").read_text().startswith("rank ")
