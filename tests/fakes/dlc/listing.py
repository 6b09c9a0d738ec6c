"""Lists of jobs: filter, order and pages."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from tests.fakes import contracts
from tests.fakes.dlc.answers import Refused
from tests.fakes.dlc.jobs import Job
from tests.fakes.dlc.requests import SCHEMA

#: Default period of a list.
_WINDOW_S = 7 * 24 * 3600.0
_DEFAULT_PAGE = 10
_SORTED_BY = {"DisplayName", "JobType", "Status", "GmtCreateTime", "GmtFinishTime"}
_NUMBERS = {"PageNumber", "PageSize", "NumericRangeMax", "NumericRangeMin"}
_TRUTHS = {"ShowOwn", "FromAllWorkspaces", "EnableAssignNode"}


def page(
    jobs: Iterable[Job], query: Mapping[str, str], *, owner: str, seen_s: float, limit: int
) -> tuple[list[Job], int]:
    """The jobs of a page as of `seen_s`, and the total number."""
    tags = _check(query)
    found = [job for job in jobs if _fits(job, query, tags, owner, seen_s)]
    order = query.get("SortBy", "GmtCreateTime")
    found.sort(key=lambda job: _sorted_by(job, order), reverse=query.get("Order", "desc") == "desc")
    size = min(int(query.get("PageSize", _DEFAULT_PAGE)), limit)
    start = (int(query.get("PageNumber", 1)) - 1) * size
    return found[start : start + size], len(found)


def _check(query: Mapping[str, str]) -> Mapping[str, str]:
    """The requested tags. Raises Refused."""
    try:
        typed: dict[str, Any] = {
            name: int(value) if name in _NUMBERS else value == "true" if name in _TRUTHS else value
            for name, value in query.items()
        }
        typed |= {"Tags": json.loads(query["Tags"])} if "Tags" in query else {}
    except ValueError as error:
        raise Refused(400, "InvalidParameter", f"The query is not valid for a list of jobs: {error}.") from None
    if fault := contracts.fault(SCHEMA, "ListJobsRequest", typed):
        raise Refused(400, "InvalidParameter", fault)
    if typed.get("PageNumber", 1) < 1 or typed.get("PageSize", 1) < 1:
        raise Refused(400, "InvalidParameter", "PageNumber and PageSize begin at 1.")
    if query.get("SortBy", "Status") not in _SORTED_BY:
        raise Refused(400, "InvalidParameter", f"SortBy: {query['SortBy']} is none of {sorted(_SORTED_BY)}.")
    return typed.get("Tags") or {}


def _fits(job: Job, query: Mapping[str, str], tags: Mapping[str, str], owner: str, seen_s: float) -> bool:
    changes = job.seen_at(seen_s)
    if not changes or (query.get("ShowOwn") == "true" and job.owner != owner):
        return False
    told, end_s = (job.request.get("Settings") or {}).get("Tags") or {}, _moment(query.get("EndTime"), seen_s)
    ids = query.get("JobId") or query.get("JobIds", "")
    return (
        _moment(query.get("StartTime"), end_s - _WINDOW_S) <= job.created_s <= _moment(query.get("EndTime"), 1e12)
        and query.get("DisplayName", "").lower() in job.name.lower()
        and query.get("Status", changes[-1].status) == changes[-1].status
        and query.get("JobType", job.request["JobType"]) == job.request["JobType"]
        and query.get("WorkspaceId", job.request.get("WorkspaceId")) == job.request.get("WorkspaceId")
        and (not ids or job.id.lower() in ids.lower().split(","))
        and all(told.get(name) == value for name, value in tags.items())
    )


def _sorted_by(job: Job, order: str) -> Any:
    if order == "GmtFinishTime":
        return job.since("Succeeded", "Failed", "Stopped") or 0.0
    if order == "GmtCreateTime":
        return job.created_s
    return {"DisplayName": job.name, "JobType": job.request["JobType"], "Status": job.status}[order]


def _moment(text: str | None, otherwise: float) -> float:
    if not text:
        return otherwise
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise Refused(400, "InvalidParameter", f"{text} is not a valid time.") from None
