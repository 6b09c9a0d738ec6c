"""ListJobs: a window of seven days, names that match in part, pages, and a view that may be late."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from tests.fakes import contracts
from tests.fakes.dlc.answers import Refused
from tests.fakes.dlc.jobs import Job

_WINDOW_S = 7 * 24 * 3600
_DEFAULT_PAGE = 10
_SORTED_BY = {"DisplayName", "JobType", "Status", "GmtCreateTime", "GmtFinishTime"}


def page(jobs: Iterable[Job], query: Mapping[str, str], *, seen_s: float, limit: int) -> tuple[list[Job], int]:
    """The jobs of one page, as they were at `seen_s`, and how many there are in all. Raises Refused."""
    if fault := contracts.fault("pai-dlc/dlc-2020-12-03.derived.schema.json", "ListJobsRequest", _typed(query)):
        raise Refused(400, "InvalidParameter", fault)
    begin_s = _moment(query["StartTime"]) if "StartTime" in query else seen_s - _WINDOW_S
    end_s = _moment(query["EndTime"]) if "EndTime" in query else float("inf")
    tags = json.loads(query.get("Tags", "{}"))
    found = [job for job in jobs if begin_s <= job.created_s <= end_s and _fits(job, query, tags, seen_s)]
    if query.get("SortBy", "GmtCreateTime") not in _SORTED_BY:
        raise Refused(400, "InvalidParameter", f"SortBy {query['SortBy']} is not supported.")
    found.sort(key=lambda job: job.created_s, reverse=query.get("Order", "desc") != "asc")
    size = min(int(query.get("PageSize", _DEFAULT_PAGE)), limit)
    number = int(query.get("PageNumber", 1))
    if size < 1 or number < 1:
        raise Refused(400, "InvalidParameter", "PageNumber and PageSize begin at 1.")
    return found[(number - 1) * size : number * size], len(found)


def _fits(job: Job, query: Mapping[str, str], tags: Mapping[str, str], seen_s: float) -> bool:
    status = job.status_at(seen_s)
    return (
        status is not None
        and query.get("WorkspaceId", job.request.get("WorkspaceId")) == job.request.get("WorkspaceId")
        and query.get("DisplayName", "").lower() in job.name.lower()
        and query.get("JobId", "").lower() in job.id.lower()
        and query.get("Status", status) == status
        and tags.items() <= (job.request.get("Settings") or {}).get("Tags", {}).items()
    )


def _typed(query: Mapping[str, str]) -> dict[str, Any]:
    """A query as the schema has it."""
    typed: dict[str, Any] = dict(query)
    for name in ("PageNumber", "PageSize"):
        if name in typed:
            if not typed[name].isdigit():
                raise Refused(400, "InvalidParameter", f"{name} is no number.")
            typed[name] = int(typed[name])
    if "Tags" in typed:
        typed["Tags"] = json.loads(typed["Tags"])
    return typed


def _moment(text: str) -> float:
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise Refused(400, "InvalidParameter", f"{text} is no time such as 2020-11-08T16:00:00Z.") from None
