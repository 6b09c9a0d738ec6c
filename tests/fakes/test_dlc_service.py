"""The fake of PAI-DLC, called by the vendor's SDK: lists, refusals, networks, preemption, containers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from alibabacloud_pai_dlc20201203 import models
from alibabacloud_pai_dlc20201203.client import Client
from alibabacloud_tea_openapi.exceptions import AlibabaCloudException
from alibabacloud_tea_openapi.utils_models import Config

from tests.fakes import contracts, sandbox
from tests.fakes.dlc.containers import Containers, Source
from tests.fakes.dlc.server import serving
from tests.fakes.dlc.service import DlcService
from tests.waiting import until

pytestmark = [pytest.mark.unit, pytest.mark.timeout(90)]
needs_containers = pytest.mark.skipif(bool(sandbox.missing()), reason=sandbox.missing() or "-")
SCHEMA = "pai-dlc/dlc-2020-12-03.derived.schema.json"


class Account:
    def __init__(self, service: DlcService, port: int, secret: str = "s3cret") -> None:
        self.service = service
        told = Config(access_key_id="LTAI1", access_key_secret=secret, region_id="cn-hangzhou")
        told.endpoint, told.protocol = f"127.0.0.1:{port}", "http"
        self.client = Client(told)

    def create(self, command: str = "true", name: str = "job", **fields: Any) -> str:
        role = {"Type": "Worker", "Image": "example/trial:1", "PodCount": 1, "EcsSpec": "ecs.c6.large"}
        body = {
            "DisplayName": name,
            "JobType": "PyTorchJob",
            "WorkspaceId": "12345",
            "UserCommand": command,
            "JobSpecs": [role],
            "DataSources": [{"DataSourceId": "nas"}],
            **fields,
        }
        answer = self.client.create_job(models.CreateJobRequest().from_map(body))
        return str(answer.body.job_id)

    def get(self, id: str) -> dict[str, Any]:
        """A valid body by the schema."""
        told: dict[str, Any] = self.client.get_job(id, models.GetJobRequest()).body.to_map()
        assert not contracts.fault(SCHEMA, "GetJobResponseBody", told)
        return told

    def list(self, **query: Any) -> list[dict[str, Any]]:
        answer = self.client.list_jobs(models.ListJobsRequest().from_map({"WorkspaceId": "12345", **query}))
        told = answer.body.to_map()
        assert not contracts.fault(SCHEMA, "ListJobsResponseBody", told)
        return list(told["Jobs"])

    def stop(self, id: str) -> None:
        self.client.stop_job(id)

    def until(self, id: str, *statuses: str) -> dict[str, Any]:
        until(lambda: self.service.jobs.by_id[id].status in statuses)
        return self.get(id)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[DlcService]:
    (tmp_path / "nas").mkdir()
    source = Source(folder=tmp_path / "nas", mount="/root/data/")
    containers = Containers(folder=tmp_path / "containers", sources={"nas": source})
    service = DlcService(tmp_path / "state", containers, keys={"LTAI1": "s3cret"})
    yield service
    service.kill_all()


@pytest.fixture
def account(service: DlcService) -> Iterator[Account]:
    with serving(service) as port:
        yield Account(service, port)


def refused(call: Callable[[], Any]) -> tuple[int, str]:
    """Status and code of a refusal."""
    with pytest.raises(AlibabaCloudException) as raised:
        call()
    return int(raised.value.status_code), str(raised.value.code)


# Refusals


@pytest.mark.parametrize("answer", [(400, "JobNotExists"), (404, "NotFound"), (403, "Forbidden.Job")])
def test_unknown_job_is_refused(account: Account, answer: tuple[int, str]) -> None:
    account.service.faults.missing = answer
    calls = (lambda: account.get("dlc0"), lambda: account.stop("dlc0"), lambda: account.client.delete_job("dlc0"))
    assert [refused(call) for call in calls] == [answer] * 3


def test_refusal_may_be_about_one_job(account: Account) -> None:
    account.service.faults.hold = True
    one, other = account.create(name="one"), account.create(name="other")
    account.service.faults.refusals[one] = (403, "Forbidden.Job")
    assert refused(lambda: account.get(one)) == refused(lambda: account.stop(one)) == (403, "Forbidden.Job")
    assert account.get(other)["DisplayName"] == "other"
    assert {job["JobId"] for job in account.list()} == {one, other}


def test_bad_keys_are_refused_before_anything_else(account: Account, service: DlcService) -> None:
    with serving(service) as port:
        stranger = Account(service, port, secret="wr0ng")
        assert refused(lambda: stranger.create()) == (400, "SignatureDoesNotMatch")
    service.signatures.keys = {}
    assert refused(lambda: account.list())[1] == "InvalidAccessKeyId.NotFound"
    assert service.jobs.by_id == {}


def test_flow_control_gives_the_wait(account: Account) -> None:
    account.service.faults.throttled, account.service.faults.retry_after_ms = 1, 1500
    with pytest.raises(AlibabaCloudException) as raised:
        account.list()
    assert (raised.value.code, raised.value.retry_after) == ("Throttling.User", 1500)
    assert account.list() == []


# Lists


def test_pages_start_at_one_and_lists_cover_seven_days(account: Account) -> None:
    account.service.faults.hold = True
    ids = [account.create(name=f"job-{number}") for number in range(12)]
    account.service.jobs.by_id[ids[0]].created_s -= 8 * 24 * 3600
    assert [len(account.list(PageNumber=number)) for number in (1, 2)] == [10, 1]
    assert account.list(PageSize=1)[0]["JobId"] == ids[-1], "newest first"
    assert len(account.list(PageSize=50, StartTime="2020-01-01T00:00:00Z")) == 12
    assert refused(lambda: account.list(PageNumber=0))[0] == 400


def test_names_match_partly_ids_and_tags_exactly(account: Account) -> None:
    account.service.faults.hold = True
    one = account.create(name="Job-one", Settings={"Tags": {"mine": "1"}})
    account.create(name="job-two", Settings={"Tags": {"mine": "2"}})
    assert len(account.list(DisplayName="jOB-")) == 2
    assert [job["JobId"] for job in account.list(Tags={"mine": "1"})] == [one]
    assert [len(account.list(JobId=id)) for id in (one, one[:5])] == [1, 0]


def test_list_is_delayed_and_an_answer_is_lost(account: Account) -> None:
    account.service.faults.list_lag_s, account.service.faults.lost_creations = 3600.0, 1
    with pytest.raises(Exception, match="RemoteDisconnected"):
        account.create()
    assert account.list() == [] and len(account.service.jobs.by_id) == 1


# Fields of jobs


def test_network_settings_are_returned(account: Account) -> None:
    account.service.faults.hold = True
    network = {"VpcId": "vpc-1", "SecurityGroupId": "sg-1", "SwitchId": "vsw-1", "ExtendedCIDRs": ["10.0.0.0/8"]}
    told = account.get(account.create(UserVpc=network))["UserVpc"]
    assert told == {
        **{n: network[n] for n in ("VpcId", "SecurityGroupId", "SwitchId")},
        "ExtendedCidrs": ["10.0.0.0/8"],
    }
    del network["ExtendedCIDRs"]
    assert refused(lambda: account.create(UserVpc=network)) == (400, "MissingParameter")


@needs_containers
@pytest.mark.parametrize("restarts", [False, True])
def test_preempted_job_has_a_preemption_reason(account: Account, restarts: bool) -> None:
    id = account.create("exec sleep 1000")
    account.until(id, "Running")
    account.service.preempt(id, restarts=restarts)
    told = account.until(id, "Running" if restarts else "Failed")
    (listed,) = account.list()
    words = [change["Status"] for change in told["StatusHistory"]]
    assert words[-2:] == (["Restarting", "Running"] if restarts else ["Running", "Failed"])
    assert words == [change["Status"] for change in listed["StatusHistory"]]
    taken = next(change for change in told["StatusHistory"] if change.get("ReasonCode"))
    assert taken["ReasonCode"] == "SpotInstanceReleased"
    assert (told["SubStatus"], listed["SubStatus"]) == (("", "") if restarts else ("Preempted", "Preempted"))
    assert (listed["RestartTimes"], "RestartRecord" in listed) == ("1/0", False)
    (record,) = told["RestartRecord"]
    assert record["RestartStatus"] == ("Succeeded" if restarts else "Failed") and record["OccurTime"]


# Containers


@needs_containers
def test_container_has_its_data_source_and_no_manager_files(account: Account, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("of the manager")
    command = f'echo "$A" $$ > /root/data/told; ! cat {tmp_path}/secret; exit 0'
    assert account.until(account.create(command, Envs={"A": "b"}), "Succeeded", "Failed")["Status"] == "Succeeded"
    assert (tmp_path / "nas" / "told").read_text() == "b 1\n"


@needs_containers
def test_failed_job_returns_its_code_and_log(account: Account) -> None:
    id = account.create("echo why; exit 3")
    told = account.until(id, "Succeeded", "Failed")
    assert (told["Status"], told["ReasonCode"]) == ("Failed", "JobFailedByUser")
    logs = account.client.get_pod_logs(id, told["Pods"][0]["PodId"], models.GetPodLogsRequest(max_lines=5))
    assert logs.body.logs == ["why"]


@needs_containers
def test_stop_signals_the_first_process_then_kills_it(account: Account, tmp_path: Path) -> None:
    hearing = account.create(
        "trap 'touch /root/data/heard; exit 0' TERM; touch /root/data/up; while :; do sleep 0.1; done"
    )
    deaf = account.create("sleep 1000; true", Settings={"TerminationGracePeriodSeconds": 1})
    until((tmp_path / "nas" / "up").exists)
    account.until(deaf, "Running")
    for id in (hearing, deaf):
        account.stop(id)
        assert account.until(id, "Stopped")["GmtStoppedTime"]
    assert (tmp_path / "nas" / "heard").exists()
    assert refused(lambda: account.stop(deaf)) == (400, "InvalidJobStatus")
