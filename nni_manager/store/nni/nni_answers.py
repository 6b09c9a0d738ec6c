"""Answers of NNI's REST API as JSON text, assembled by SQLite, with exactly the keys that NNI's clients read.

Keys without a value are omitted, as those clients distinguish absent from null. Results are encoded as in NNI: `data`
of a metric twice, `value` of an export once, so that NaN and Infinity are inside strings.
"""

from __future__ import annotations

import json
import sqlite3
from typing import Any

from nni_manager.domain.errors import NotFound
from nni_manager.domain.trial_status import OPEN_STATUSES

#: Greater than every sequence id and metric id.
END = 2**62

#: JSON text encoded twice. (SQLite quotes only once what it knows to be JSON.)
_TWICE = "json_quote(json_quote({0}) || '')"

_METRIC = (
    """printf('{"timestamp":%d,"trialJobId":"%s","parameterId":%s,"type":"%s","sequence":%d,"data":%s}',"""
    """ m.stored_ms, t.id, coalesce('"' || t.parameter_id || '"', 'null'), m.type, m.sequence, """
    + _TWICE.format("m.data")
    + ")"
)

_FINAL = (
    f"(SELECT {_METRIC} FROM metrics m WHERE m.trial_id = t.id AND m.attempt = t.attempt AND m.type = 'FINAL'"
    " ORDER BY m.id LIMIT 1)"
)

_FOLDER = ":trials || '/' || t.id || CASE WHEN t.attempt > 1 THEN '-' || t.attempt ELSE '' END"

#: NNI shows one path: the platform's own page of the job, if it has one.
_PLACE = (
    f"coalesce((SELECT nullif(a.link, '') FROM attempts a WHERE a.trial_id = t.id AND a.number = t.attempt), {_FOLDER})"
)

#: A fragment of printf is null, which prints nothing, if the trial lacks the field.
_TRIAL = f"""
printf('{{"trialJobId":"%s","status":"%s","hyperParameters":[%s],"sequenceId":%d,"startTime":%d%s%s%s%s%s}}',
    t.id, t.status, json_quote(t.record), t.sequence_id, coalesce(t.started_ms, t.created_ms),
    ',"endTime":' || t.ended_ms,
    CASE WHEN t.message || t.wait_sentence <> ''
         THEN printf(',"message":%s', json_quote(coalesce(nullif(t.message, ''), t.wait_sentence))) END,
    CASE WHEN t.started_ms IS NOT NULL THEN printf(',"logPath":%s', json_quote({_PLACE})) END,
    CASE WHEN t.started_ms IS NOT NULL AND t.status = 'FAILED'
         THEN printf(',"stderrPath":%s', json_quote({_FOLDER} || '/stderr')) END,
    CASE WHEN t.status = 'SUCCEEDED' THEN ',"finalMetricData":[' || {_FINAL} || ']' END)
"""

_EXPORT = (
    """printf('{"parameter":%s,"value":%s,"trialJobId":"%s"}',"""
    " CASE WHEN json_valid(t.record) THEN t.record -> '$.parameters' ELSE strict_parameters(t.record) END,"
    " json_quote(t.final_data), t.id)"
)

_OF_CURRENT_ATTEMPTS = "metrics m CROSS JOIN trials t ON t.id = m.trial_id AND t.attempt = m.attempt"
_INTERMEDIATES = "FROM metrics p WHERE p.trial_id = t.id AND p.attempt = t.attempt AND p.type = 'PERIODICAL'"
_OPEN = ", ".join(f"'{status}'" for status in OPEN_STATUSES)


def trials(connection: sqlite3.Connection, folder: str, *, start: int = 0, end: int = END, status: str = "") -> bytes:
    """The trials with sequence ids in [start, end), by it, joined by commas; `folder`: where attempts' folders are.

    `status`: only those with it; empty: all.
    """
    where = "t.sequence_id >= :start AND t.sequence_id < :end" + (" AND t.status = :status" if status else "")
    query = f"SELECT {_TRIAL} AS item FROM trials t WHERE {where} ORDER BY t.sequence_id"
    return _joined(connection, query, trials=folder, start=start, end=end, status=status)


def trial(connection: sqlite3.Connection, folder: str, id: str) -> bytes:
    """One trial. Raises NotFound."""
    text = _joined(connection, f"SELECT {_TRIAL} AS item FROM trials t WHERE t.id = :id", trials=folder, id=id)
    if not text:
        raise NotFound(f"cannot find trial {id}")
    return text


def settled_trials(connection: sqlite3.Connection) -> int:
    """The lowest sequence id of an open trial, or else the next one; trials before it no longer change."""
    query = (
        f"SELECT coalesce((SELECT min(sequence_id) FROM trials WHERE status IN ({_OPEN})),"
        " (SELECT max(sequence_id) + 1 FROM trials), 0)"
    )
    return int(connection.execute(query).fetchone()[0])


def metrics(
    connection: sqlite3.Connection, *, start: int = 0, end: int = END, trial_id: str = "", type: str = ""
) -> bytes:
    """The results with ids in [start, end) in the order they were stored, joined by commas.

    `trial_id`, `type`: only those of it; empty: all. Results of given-up attempts are left out.
    """
    wheres = ["m.id >= :start AND m.id < :end"]
    wheres += ["m.trial_id = :trial_id"] if trial_id else []
    wheres += ["m.type = :type"] if type else []
    query = f"SELECT {_METRIC} AS item FROM {_OF_CURRENT_ATTEMPTS} WHERE {' AND '.join(wheres)} ORDER BY m.id"
    return _joined(connection, query, start=start, end=end, trial_id=trial_id, type=type)


def settled_metrics(connection: sqlite3.Connection) -> int:
    """The lowest id of an open trial's result, or else the next one; results before it no longer change."""
    query = (
        "SELECT coalesce((SELECT min(first) FROM (SELECT (SELECT m.id FROM metrics m WHERE m.trial_id = t.id"
        " AND m.attempt = t.attempt ORDER BY m.id LIMIT 1) AS first"
        f" FROM trials t WHERE t.status IN ({_OPEN}))), (SELECT max(id) + 1 FROM metrics), 0)"
    )
    return int(connection.execute(query).fetchone()[0])


def metrics_of_range(connection: sqlite3.Connection, first: int, last: int) -> bytes:
    """The results of trials with sequence ids from `first` to `last`, both included, as `metrics`."""
    query = (
        f"SELECT {_METRIC} AS item FROM trials t CROSS JOIN metrics m ON m.trial_id = t.id AND m.attempt = t.attempt"
        " WHERE t.sequence_id BETWEEN :first AND :last ORDER BY m.id"
    )
    return _joined(connection, query, first=first, last=last)


def latest_metrics(connection: sqlite3.Connection) -> bytes:
    """All final results, then each trial's intermediate result with the highest sequence, ordered by its first one.

    That is the last one stored, except where NNI ran a trial twice.
    """
    finals = metrics(connection, type="FINAL")
    highest = f"SELECT p.id {_INTERMEDIATES} ORDER BY p.sequence DESC, p.id DESC LIMIT 1"
    query = (
        f"SELECT {_METRIC} AS item FROM trials t CROSS JOIN metrics m ON m.id = (SELECT"
        f" CASE WHEN p.sequence + 1 = t.intermediates THEN p.id ELSE ({highest}) END"
        f" {_INTERMEDIATES} ORDER BY p.id DESC LIMIT 1)"
        f" ORDER BY (SELECT p.id {_INTERMEDIATES} ORDER BY p.id LIMIT 1)"
    )
    return b",".join(filter(None, (finals, _joined(connection, query))))


def export(connection: sqlite3.Connection) -> bytes:
    """Parameters and final result of every succeeded trial with one, joined by commas."""
    connection.create_function("strict_parameters", 1, _strict_parameters, deterministic=True)
    query = (
        f"SELECT {_EXPORT} AS item FROM trials t WHERE t.status = 'SUCCEEDED' AND t.final_data IS NOT NULL"
        " ORDER BY t.sequence_id"
    )
    return _joined(connection, query)


def imports(connection: sqlite3.Connection) -> bytes:
    """Imported results, a JSON string of each call's text, joined by commas."""
    return _joined(connection, "SELECT json_quote(data) AS item FROM imports ORDER BY id")


def statistics(connection: sqlite3.Connection) -> bytes:
    """The number of trials by status, ordered by the first trial of each, joined by commas."""
    query = (
        """SELECT printf('{"trialJobStatus":"%s","trialJobNumber":%d}', status, count(*)) AS item FROM trials"""
        " GROUP BY status ORDER BY min(sequence_id)"
    )
    return _joined(connection, query)


def _joined(connection: sqlite3.Connection, query: str, **values: object) -> bytes:
    """The items of a query joined by commas; as bytes, which need no decoding and encoding before they are sent."""
    joined = f"SELECT CAST(coalesce(group_concat(item, ','), '') AS BLOB) FROM ({query})"
    return bytes(connection.execute(joined, values).fetchone()[0])


def _strict_parameters(record: str) -> str:
    """The parameters as strict JSON: NaN and infinity become null."""
    found: dict[str, Any] = json.loads(record, parse_constant=lambda _: None)
    return json.dumps(found.get("parameters"))
