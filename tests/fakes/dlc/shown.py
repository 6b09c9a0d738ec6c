"""A job in answers: JobItem in lists, more fields in GetJob."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from tests.fakes.dlc.faults import Faults
from tests.fakes.dlc.jobs import ENDED, Change, Job

#: Status → field with its time.
_MOMENTS = {
    "Queuing": "GmtSubmittedTime",
    "Running": "GmtRunningTime",
    "Succeeded": "GmtSuccessedTime",
    "Failed": "GmtFailedTime",
    "Stopped": "GmtStoppedTime",
}
_ASKED = ("CodeSource", "DisplayName", "Envs", "JobSpecs", "JobType", "Priority", "ResourceId", "Settings")
_ASKED_TOO = ("UserCommand", "WorkspaceId", "Accessibility", "ThirdpartyLibs", "ThirdpartyLibDir")


def item(job: Job, faults: Faults, seen_s: float) -> dict[str, Any]:
    """A job as of `seen_s`."""
    changes = job.seen_at(seen_s)
    last, request = changes[-1], job.request
    told = {name: request[name] for name in (*_ASKED, *_ASKED_TOO) if name in request}
    told |= {
        "JobId": job.id,
        "UserId": job.owner,
        "Status": faults.statuses.get(job.id, last.status),
        "SubStatus": last.sub_status,
        "ReasonCode": last.code,
        "ReasonMessage": faults.reasons.get(job.id, last.message),
        "GmtCreateTime": written(job.created_s),
        "StatusHistory": list(map(_change, changes, [*changes[1:], None])),
        "RestartTimes": f"{len(job.restarts)}/{job.most_restarts}",
        "IsDeleted": False,
        "Duration": round(seen_s - (job.since("Running") or seen_s)),
        "DataSources": [
            {name: one[name] for name in ("DataSourceId", "MountPath") if name in one}
            for one in request.get("DataSources") or ()
        ],
    }
    told |= {_MOMENTS[change.status]: written(change.moment_s) for change in changes if change.status in _MOMENTS}
    told |= {"GmtFinishTime": written(last.moment_s)} if last.status in ENDED else {}
    return told | _network(request)


def detail(job: Job, faults: Faults, now_s: float, *, is_whole: bool) -> dict[str, Any]:
    """The fields of GetJob. `is_whole`: with its containers."""
    told = item(job, faults, now_s)
    del told["IsDeleted"]
    records = [{**record, "OccurTime": written(record["moment_s"])} for record in job.restarts]
    for record in records:
        del record["moment_s"]
    told["RestartRecord"] = records
    return told | ({"Pods": list(pods(job))} if is_whole else {})


def pods(job: Job) -> list[dict[str, str]]:
    """The containers of its current run."""
    places = [(spec["Type"], index) for spec in job.request["JobSpecs"] for index in range(spec["PodCount"])]
    if job.containers is None:
        return []
    return [
        {
            "PodId": f"{job.id}-{role.lower()}-{index}",
            "PodUid": f"{job.run_id}-{number}",
            "Type": role.lower(),
            "Status": job.status if job.status in ENDED else "Running",
            "Ip": "127.0.0.1",
        }
        for number, (role, index) in enumerate(places)
    ]


def _network(request: Mapping[str, Any]) -> dict[str, Any]:
    """The user's VPC; one field has a different name in answers."""
    asked = request.get("UserVpc")
    if not asked:
        return {}
    return {"UserVpc": {{"ExtendedCIDRs": "ExtendedCidrs"}.get(name, name): asked[name] for name in asked}}


def _change(change: Change, following: Change | None) -> dict[str, str]:
    told = {"Status": change.status, "StartTime": written(change.moment_s)}
    told |= {"ReasonCode": change.code, "ReasonMessage": change.message}
    return told | ({"EndTime": written(following.moment_s)} if following else {})


def written(moment_s: float) -> str:
    return datetime.fromtimestamp(moment_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
