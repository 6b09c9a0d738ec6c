"""The trials of an experiment as a table: filter, order, page, rows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from nni_manager.domain.errors import InvalidInput
from nni_manager.domain.trial import OPEN_STATUSES, TrialStatus, reason_in_words
from nni_manager.store.connection import Connection
from nni_manager.store.experiment import answers, runners
from nni_manager.store.experiment.answers import Page
from nni_manager.web import formats

PAGE_SIZE = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class TableQuery:
    """The filter, order and page that the query string selects."""

    order: str = "-sequence"
    #: Empty: any.
    status: str = ""
    #: From 1.
    page: int = 1

    @staticmethod
    def parse(query: Mapping[str, str]) -> TableQuery:
        """The query in a page's address. Raises InvalidInput."""
        order, status = query.get("order", "-sequence"), query.get("status", "")
        if order not in answers.TRIAL_ORDERS:
            raise InvalidInput(f"order: must be one of {', '.join(answers.TRIAL_ORDERS)}")
        if status and status not in TrialStatus.__members__:
            raise InvalidInput(f"status: must be one of {', '.join(TrialStatus)}")
        return TableQuery(order=order, status=status, page=page_number(query))

    def string(self, **changes: object) -> str:
        """The query string with some values changed."""
        fields = {"order": self.order, "status": self.status, "page": self.page, **changes}
        return urlencode({name: value for name, value in fields.items() if value})

    def sorted_by(self, column: str) -> str:
        """The query string that sorts by `column`, or reverses its order."""
        return self.string(order=column if self.order == f"-{column}" else f"-{column}", page=1)

    def direction(self, column: str) -> str:
        """The value of a column's `aria-sort`."""
        return {column: "ascending", f"-{column}": "descending"}.get(self.order, "none")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    id: str
    number: int
    status: str
    #: Why it has its status: the wait, or how it ended.
    explanation: str
    parameters: list[tuple[str, str]]
    duration: str
    attempt: int
    #: Version and channel of the trial runner inside its job; empty: none.
    runner: str
    intermediates: int
    final: str
    #: The final result as reported.
    final_text: str
    log_path: str
    #: Where its current attempt runs; empty: not known.
    place: str
    #: The platform's page of its job; empty: none.
    link: str
    has_logs: bool
    is_open: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    query: TableQuery
    total: int
    rows: list[Row]

    @property
    def pages(self) -> int:
        return max(1, -(-self.total // PAGE_SIZE))


def read(connection: Connection, query: TableQuery, now_ms: int) -> Table:
    """One page of the table."""
    page = Page(limit=PAGE_SIZE, offset=(query.page - 1) * PAGE_SIZE)
    found = json.loads(answers.trials(connection, status=query.status or None, order=query.order, page=page))
    by_trial = runners.of_trials(connection, [trial["id"] for trial in found["trials"]])
    rows = [_row(trial, by_trial.get(trial["id"]), now_ms) for trial in found["trials"]]
    return Table(query=query, total=found["total"], rows=rows)


def page_number(query: Mapping[str, str]) -> int:
    """The number of the page, from 1. Raises InvalidInput."""
    text = query.get("page", "1")
    if not (text.isascii() and text.isdecimal() and 1 <= len(text) <= 9 and int(text)):
        raise InvalidInput("page: must be a number from 1")
    return int(text)


def _row(trial: dict[str, Any], runner: tuple[str, str] | None, now_ms: int) -> Row:
    return Row(
        id=trial["id"],
        number=trial["sequenceId"],
        status=trial["status"],
        explanation=_explanation(trial),
        parameters=formats.parameters(trial["parameters"]),
        duration=_duration(trial, now_ms),
        attempt=trial["attempt"],
        runner=_runner(*runner) if runner else "",
        intermediates=trial["intermediates"],
        final=formats.result(trial["finalResult"]),
        final_text=trial["finalResult"] or "",
        log_path=trial["logPath"],
        place=trial["place"] or trial["service"] or "",
        link=formats.web_link(trial["link"]),
        has_logs=trial["startedMs"] is not None,
        is_open=trial["status"] in OPEN_STATUSES,
    )


def _runner(version: str, channel: str) -> str:
    return f"runner {version}" + (f", {channel}" if channel else "")


def _explanation(trial: dict[str, Any]) -> str:
    if trial["wait"]:
        return str(trial["wait"]["sentence"])
    asked = f"asked to stop: {trial['stopRequest']}" if trial["stopRequest"] and not trial["endedMs"] else ""
    return reason_in_words(trial["reason"], trial["message"], trial["lastWords"]) or asked


def _duration(trial: dict[str, Any], now_ms: int) -> str:
    started, ended = trial["startedMs"], trial["endedMs"]
    return "" if started is None else formats.duration((now_ms if ended is None else ended) - started)
