"""A real daemon on PAI-DLC's stand-in: what trials report, what their commands hold, what a killed daemon finds."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import sandbox
from tests.fakes.dlc.containers import Containers, Source
from tests.fakes.dlc.server import serving
from tests.fakes.dlc.service import DlcService
from tests.live_daemon import Daemon, running_daemon
from tests.storage_places import folder_of
from tests.waiting import until

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(120)]
LISTENING = ("--host", "127.0.0.1", "--port", "0", "--trial-host", "127.0.0.1")
SECRET = "k3y-of-the-account"
#: What shells, templates and clusters might take for their own.
ODD = """\
printf '%s|' "it's" '$HOME' '`id`' '<% $x %>' '$(NNI_EXP_ID)' '"' > odd
printf '%s' "$NNI_TRIAL_JOB_ID" >> odd
"""
REPORT = "python3 trial.py"
TRIAL = """\
import json, os

with open(os.path.join(os.environ["NNI_SYS_DIR"], "parameter.cfg")) as file:
    x = json.load(file)["parameters"]["x"]
with open(os.environ["NNI_OUTBOX"], "a") as file:
    file.write(json.dumps({"type": "final", "value": x}) + "\\n")
"""


class Dsw:
    """A machine with a NAS: a daemon here, the service there."""

    def __init__(self, folder: Path, daemon: Daemon) -> None:
        self.daemon, self.folder = daemon, folder
        self.nas, self.there = folder / "nas", folder / "container" / "data"
        self.code = folder / "code"
        for one in (self.nas, self.code):
            one.mkdir()
        (self.code / "trial.py").write_text(TRIAL)
        sources = {"data1nas": Source(folder=self.nas, mount="/root/data/")}
        self.containers = Containers(folder=folder / "containers", sources=sources)
        self.service = DlcService(folder / "state", self.containers, keys={"LTAIexample": SECRET})
        self.port = 0

    def create(self, command: str, trials: int, concurrency: int = 4, **fields: Any) -> str:
        section = {
            "platform": "dlc",
            "image": "example/trial:1",
            "jobType": "PyTorchJob",
            "podCount": 1,
            "ecsSpec": "ecs.c6.large",
            "region": "cn-hangzhou",
            "workspaceId": "12345",
            "nasDataSourceId": "data1nas",
            "accessKeyId": "LTAIexample",
            "accessKeySecret": SECRET,
            "localStorageMountPoint": str(self.nas),
            "containerStorageMountPoint": str(self.there),
            "endpoint": f"http://127.0.0.1:{self.port}",
            "nniManagerIp": "127.0.0.1",
            **fields,
        }
        config = {
            "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
            "trialCommand": command,
            "trialCodeDirectory": ".",
            "trialConcurrency": concurrency,
            "maxTrialNumber": trials,
            "tuner": {"name": "Random", "classArgs": {"optimize_mode": "maximize"}},
            "trainingService": section,
        }
        return self.daemon.create(config, self.code)

    def check(self, id: str, trials: int) -> list[dict[str, Any]]:
        """As many jobs as trials, and every trial with its own result."""
        found: list[dict[str, Any]] = self.daemon.call("GET", f"/experiments/{id}/trials")["trials"]
        names = Counter(job.name for job in self.service.jobs.by_id.values())
        assert names == {f"nni_exp_{id}_trial_{trial['id']}": 1 for trial in found}
        assert [trial["status"] for trial in found] == ["SUCCEEDED"] * trials
        for trial in found:
            record = json.loads(
                (folder_of(self.nas / "nni-experiments", id) / trial["id"] / "parameter.cfg").read_text()
            )
            assert trial["finalValue"] == record["parameters"]["x"]
        return found


@pytest.fixture
def dsw(tmp_path: Path) -> Iterator[Dsw]:
    with running_daemon(tmp_path, *LISTENING) as daemon:
        machine = Dsw(tmp_path, daemon)
        with serving(machine.service) as machine.port:
            yield machine
            machine.service.kill_all()


def test_lost_answers_late_list_and_killed_daemon_are_harmless(dsw: Dsw) -> None:
    dsw.service.faults.list_lag_s, dsw.service.faults.lost_creations = 5.0, 6
    id = dsw.create(REPORT, trials=12)
    until(lambda: len(dsw.service.jobs.by_id) >= 3)
    dsw.daemon.kill()
    dsw.daemon.start(*LISTENING)
    dsw.daemon.wait(id, "DONE", timeout_s=90)
    for trial in dsw.check(id, 12):
        assert trial["link"].startswith("https://pai-dlc.console.aliyun.com/#/jobs/detail?jobId=dlc")
    assert SECRET not in dsw.daemon.log() + (dsw.daemon.data / id / "log" / "nnimanager.log").read_text()


def test_no_trial_is_lost_when_access_key_is_rotated(dsw: Dsw, monkeypatch: pytest.MonkeyPatch) -> None:
    dsw.service.faults.hold = True
    monkeypatch.setenv("KEY_ID", "LTAIexample")
    monkeypatch.setenv("KEY", SECRET)
    id = dsw.create(REPORT, trials=3, accessKeyId="${KEY_ID}", accessKeySecret="${KEY}")
    until(lambda: len(dsw.service.jobs.by_id) == 3)
    dsw.service.signatures.keys = {"LTAIanother": "an0ther"}
    dsw.daemon.wait_for(id, lambda state: state["hold"] and "refuses" in state["hold"]["sentence"])
    given = {"${KEY_ID}": "LTAIanother", "${KEY}": "an0ther"}
    dsw.daemon.call("PUT", f"/experiments/{id}/credentials", json={"secrets": given})
    for job in list(dsw.service.jobs.by_id):
        dsw.service.release(job)
    dsw.daemon.wait(id, "DONE", timeout_s=90)
    dsw.check(id, 3)


def test_command_is_unchanged_when_manager_is_unreachable(dsw: Dsw, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(sandbox.IMAGE, sandbox.SOON_READ)
    id = dsw.create(ODD + REPORT, trials=1, nniManagerIp="127.0.0.2")
    dsw.daemon.wait(id, "DONE", timeout_s=90)
    (trial,) = dsw.check(id, 1)
    odd = (folder_of(dsw.nas / "nni-experiments", id) / trial["id"] / "code" / "odd").read_text()
    assert odd == f"it's|$HOME|`id`|<% $x %>|$(NNI_EXP_ID)|\"|{trial['id']}"
    assert dsw.daemon.rows(id, "SELECT channel FROM attempts") == [("pull",)]
    job = next(iter(dsw.service.jobs.by_id.values()))
    assert "printf" not in json.dumps(job.request) and SECRET not in json.dumps(job.request)


@pytest.mark.parametrize("job_type", ["PyTorchJob", "TFJob"])
def test_first_of_two_containers_reports(dsw: Dsw, job_type: str) -> None:
    (dsw.nas / "meeting").mkdir()
    meeting = dsw.there / "meeting"
    both_run = f'mktemp -p {meeting} > /dev/null; until [ "$(ls {meeting} | wc -l)" = 2 ]; do sleep 0.05; done'
    command = f'echo "$RANK$TF_CONFIG" > who; {both_run}; {REPORT}'
    id = dsw.create(command, trials=1, jobType=job_type, podCount=2)
    dsw.daemon.wait(id, "DONE", timeout_s=90)
    (trial,) = dsw.check(id, 1)
    until(lambda: next(iter(dsw.service.jobs.by_id.values())).status == "Succeeded")
    folder = folder_of(dsw.nas / "nni-experiments", id) / trial["id"]
    assert (folder / "code" / "who").read_text() != (folder / "replicas" / "replica-1" / "code" / "who").read_text()
    assert trial["intermediates"] == 0 and len(dsw.daemon.rows(id, "SELECT 1 FROM metrics")) == 1


def test_a_job_stopped_in_the_console_stays_stopped(dsw: Dsw) -> None:
    id = dsw.create("sleep 100", trials=1)
    until(lambda: any(job.status == "Running" for job in dsw.service.jobs.by_id.values()))
    dsw.daemon.wait_for(id, lambda state: state["counts"].get("RUNNING"))
    dsw.service.stop(next(iter(dsw.service.jobs.by_id)))
    dsw.daemon.wait(id, "DONE", timeout_s=90)
    (trial,) = dsw.daemon.call("GET", f"/experiments/{id}/trials")["trials"]
    assert (trial["status"], len(dsw.service.jobs.by_id)) == ("SYS_CANCELED", 1)


def test_faulty_config_is_refused_before_any_job(dsw: Dsw) -> None:
    cases = [
        ({"accessKeySecret": "wr0ng"}, "accessKeySecret"),
        ({"workspaceId": "999"}, "workspaceId"),
        ({"ecsSpec": "ecs.no.such"}, "ecs.no.such"),
        ({"localStorageMountPoint": "/no/such/mount"}, "/no/such/mount"),
        ({"ecsSpec": "{'resource_id': 'rg1', 'cpu': 'two'}"}, "'cpu'"),
    ]
    for fields, words in cases:
        with pytest.raises(AssertionError) as refused:
            dsw.create("true", trials=1, **fields)
        assert words in str(refused.value) and "wr0ng" not in str(refused.value), fields
    assert dsw.service.jobs.by_id == {}


def test_a_job_that_was_preempted_gets_another_attempt(dsw: Dsw) -> None:
    """The service reports the preemption; no command has failed."""
    go = dsw.there / "go"
    id = dsw.create(f"until [ -e {go} ]; do sleep 0.1; done; {REPORT}", trials=1)
    dsw.daemon.wait_for(id, lambda state: state["counts"].get("RUNNING") == 1)
    (job,) = dsw.service.jobs.by_id
    dsw.service.preempt(job)
    until(lambda: len(dsw.service.jobs.by_id) == 2)
    (dsw.nas / "go").touch()
    dsw.daemon.wait(id, "DONE", timeout_s=90)
    (trial,) = dsw.daemon.call("GET", f"/experiments/{id}/trials")["trials"]
    assert trial["status"] == "SUCCEEDED"
