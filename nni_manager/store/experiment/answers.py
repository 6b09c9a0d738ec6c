"""Large answers of the API as JSON text, assembled by SQLite without a Python object per row."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Any

from nni_manager.domain.errors import NotFound
from nni_manager.domain.trial_status import TrialStatus
from nni_manager.store.experiment import code_states, learning_curves

#: Whether a number is finite and present (the store has null for NaN); only such results are compared.
_FINITE = "coalesce(abs({0}) < 1.8e308, 0)"
#: A number as JSON with all its digits; null: it has no JSON form.
_NUMBER = f"CASE WHEN {_FINITE} THEN json(printf('%!.17g', {{0}})) END"

#: Number of lines of the current attempt that are not results.
_DROPPED = (
    "(SELECT coalesce(sum(o.lines), 0) FROM outboxes o WHERE o.trial_id = t.id AND o.attempt = t.attempt)"
    " - (SELECT count(*) FROM metrics m WHERE m.trial_id = t.id AND m.attempt = t.attempt)"
)
#: The number of dropped lines, if the trial's message names the first one, or no result can be compared.
_DROPPED_LINES = f"""
CASE WHEN (instr(t.message, ' was dropped: ') > 0 OR (t.status = 'SUCCEEDED' AND t.final_value IS NULL))
    AND {_DROPPED} > 0
THEN '; dropped lines that are not results: ' || ({_DROPPED}) || ', see nnimanager.log' ELSE '' END
"""
_HAS_OBJECTIVES = "(SELECT json_type(config, '$.objectives') FROM experiment) IS NOT NULL"
#: A final result in a form that SQLite can parse: without numbers that JSON lacks.
_JSON = "replace(replace(replace(t.final_data, '-Infinity', 'null'), 'Infinity', 'null'), 'NaN', 'null')"
#: The objectives without a number in a trial's final result; null: none.
_LACKING = f"""
(SELECT group_concat(o.key, ', ') FROM experiment e, json_each(e.config, '$.objectives') o WHERE NOT EXISTS
    (SELECT 1 FROM json_each({_JSON}) r
     WHERE coalesce(r.key, 'default') = o.key AND r.type IN ('integer', 'real') AND {_FINITE.format("r.value")}))
"""
#: How a trial ended, and why a succeeded one has no comparable result. For a running trial: why its job cannot be
#: observed, before the trial is UNKNOWN.
_MESSAGE = f"""
CASE WHEN t.status = 'RUNNING' AND c.unreachable_ms IS NOT NULL
THEN 'its job''s state is unknown: ' || c.unreachable
WHEN t.status <> 'SUCCEEDED' THEN t.message
WHEN t.final_data IS NOT NULL AND {_HAS_OBJECTIVES} THEN
    trim(t.message || coalesce('; its final result has no finite number for the objective ' || {_LACKING}, ''), '; ')
WHEN {_FINITE.format("t.final_value")} THEN t.message ELSE
    CASE t.message WHEN '' THEN '' ELSE t.message || '; ' END || CASE
    WHEN t.final_data IS NULL AND t.intermediates = 0 THEN 'it reported neither a final nor an intermediate result'
    WHEN t.final_data IS NULL THEN 'it reported no final result, only ' || t.intermediates || ' intermediate'
    WHEN t.final_value IS NOT NULL THEN 'its final result is infinite, which is never the best'
    WHEN ltrim(t.final_data) LIKE '{{%' THEN 'its final result has no number under `default`'
    ELSE 'its final result is not a number' END
END || {_DROPPED_LINES}
"""

_PARAMETERS = """
CASE json_type(t.record, '$.parameters') WHEN 'true' THEN json('true') WHEN 'false' THEN json('false')
ELSE json_extract(t.record, '$.parameters') END
"""

#: One trial as JSON, of `TRIALS`.
TRIAL = f"""
json_object(
    'id', t.id, 'sequenceId', t.sequence_id, 'status', t.status,
    'parameterId', t.parameter_id, 'parameterSource', json_extract(t.record, '$.parameter_source'),
    'parameters', {_PARAMETERS},
    'createdMs', t.created_ms, 'startedMs', t.started_ms, 'endedMs', t.ended_ms,
    'attempt', t.attempt, 'stopRequest', nullif(t.asked, ''), 'reason', nullif(t.reason, ''), 'message', {_MESSAGE},
    'lastWords', t.last_words, 'failureKey', nullif(t.failure_key, ''),
    'wait', CASE WHEN t.wait_code = '' THEN NULL ELSE json_object(
        'code', t.wait_code, 'sentence', t.wait_sentence, 'details', json(t.wait_details)) END,
    'intermediates', t.intermediates, 'lastValue', {_NUMBER.format("t.last_value")},
    'finalValue', {_NUMBER.format("t.final_value")}, 'finalResult', t.final_data,
    'logPath', (SELECT folder FROM experiment) || '/trials/' || t.id
        || CASE WHEN t.attempt > 1 THEN '-' || t.attempt ELSE '' END,
    'codeState', {code_states.OF_ATTEMPT},
    'service', nullif(c.service, ''), 'place', coalesce(c.place, ''), 'link', coalesce(c.link, '')
)
"""
TRIALS = "trials t LEFT JOIN attempts c ON c.trial_id = t.id AND c.number = t.attempt"

_ATTEMPT = """
json_object(
    'number', a.number, 'jobName', a.job_name, 'state', a.state, 'exitCode', a.exit_code, 'signal', a.signal,
    'reason', a.native_reason, 'cause', nullif(a.cause, ''), 'message', a.message,
    'stderrTail', a.stderr_tail, 'givenUp', nullif(a.given_up, ''),
    'submittedMs', a.intended_ms, 'startedMs', a.started_ms, 'endedMs', a.ended_ms,
    'channel', nullif(a.channel, ''), 'runnerVersion', nullif(a.runner_version, ''), 'runnerExit', json(a.runner_exit),
    'service', a.service, 'place', a.place, 'link', a.link,
    'wait', CASE WHEN a.wait_code = '' THEN NULL ELSE json_object(
        'code', a.wait_code, 'sentence', a.wait_sentence, 'details', json(a.wait_details)) END,
    'unreachableMs', a.unreachable_ms, 'unreachable', a.unreachable, 'interruptions', json(a.interruptions),
    'containers', json_array_length(a.containers), 'epoch', a.epoch
)
"""

_METRIC = f"""
json_object(
    'id', m.id, 'trialId', m.trial_id, 'attempt', m.attempt, 'type', m.type, 'sequence', m.sequence, 'step', m.step,
    'storedMs', m.stored_ms, 'result', m.data, 'value', {_NUMBER.format("m.value")},
    'outbox', (SELECT name FROM outboxes o WHERE o.id = m.outbox), 'number', m.number, 'epoch', m.epoch
)
"""

#: Sort orders of the trial list.
TRIAL_ORDERS = {
    "sequence": "t.sequence_id",
    "-sequence": "t.sequence_id DESC",
    "final": f"NOT {_FINITE.format('t.final_value')}, t.final_value",
    "-final": f"NOT {_FINITE.format('t.final_value')}, t.final_value DESC",
}


def trials(connection: sqlite3.Connection, *, status: str | None, order: str, limit: int, offset: int = 0) -> str:
    """``{"total": n, "trials": […]}``: `limit` trials after skipping `offset`; `order` is a key of `TRIAL_ORDERS`."""
    where = "WHERE t.status = :status" if status else ""
    query = (
        f"SELECT json_object('total', (SELECT count(*) FROM trials t {where}),"
        " 'trials', json_group_array(json(trial))) FROM"
        f" (SELECT {TRIAL} AS trial FROM {TRIALS} {where} ORDER BY {TRIAL_ORDERS[order]} LIMIT :limit OFFSET :offset)"
    )
    return _one(connection, query, status=status, limit=limit, offset=offset)


def trials_since(connection: sqlite3.Connection, ended: int) -> list[tuple[str, str, int | None]]:
    """(id, JSON on one line as in the list, end order or None) of open trials, and of those with an end order above
    `ended`, by sequence id; the first to end has 1."""
    marks = ", ".join(f"'{status}'" for status in TrialStatus if not status.is_final)
    query = (
        f"SELECT t.id, {TRIAL}, t.end_order FROM {TRIALS} WHERE t.status IN ({marks}) OR t.end_order > ?"
        " ORDER BY t.sequence_id"
    )
    return connection.execute(query, (ended,)).fetchall()


def ended(connection: sqlite3.Connection) -> int:
    """The end order of the trial that ended last; 0: none."""
    (found,) = connection.execute("SELECT ended_trials FROM experiment").fetchone()
    return int(found)


def trial(connection: sqlite3.Connection, id: str) -> str:
    """One trial with its ``attempts``. Raises NotFound."""
    query = (
        f"SELECT json_set({TRIAL}, '$.repeats', nullif(t.repeats, ''),"
        f" '$.attempts', (SELECT json_group_array(json({_ATTEMPT})) FROM"
        f" (SELECT * FROM attempts WHERE trial_id = t.id ORDER BY number) a)) FROM {TRIALS} WHERE t.id = :id"
    )
    row = connection.execute(query, {"id": id}).fetchone()
    if row is None:
        raise NotFound(f"cannot find trial {id}")
    return str(row[0])


_IN_SET = "json(iif(t.id IN (SELECT value FROM json_each(:members)), 'true', 'false'))"
#: The current attempt's results in order, the final one last, as in NNI's export.
_REPORTED = """
(SELECT json_group_array(m.data) FROM (SELECT data FROM metrics WHERE trial_id = t.id AND attempt = t.attempt
    ORDER BY id) m)
"""


def exported(
    connection: sqlite3.Connection, *, with_intermediates: bool, pareto_set: Sequence[str] | None = None
) -> str:
    """``[{"parameter", "value", "trialJobId"}]`` of succeeded trials with a final result.

    `pareto_set`: the ids of the trials whose ``pareto`` is true; None: the field is omitted.
    """
    fields = f"'parameter', {_PARAMETERS}, 'value', t.final_data, 'trialJobId', t.id"
    fields += f", 'pareto', {_IN_SET}" if pareto_set is not None else ""
    fields += f", 'intermediate', json({_REPORTED})" if with_intermediates else ""
    query = (
        f"SELECT json_group_array(json(result)) FROM (SELECT json_object({fields}) AS result FROM trials t"
        " WHERE t.status = 'SUCCEEDED' AND t.final_data IS NOT NULL ORDER BY t.sequence_id)"
    )
    return _one(connection, query, members=json.dumps(pareto_set))


def curves(connection: sqlite3.Connection, trial_ids: Sequence[str]) -> dict[str, list[Any]]:
    """Trial → its learning curve, with NaN and Infinity as their names."""
    query = (
        "SELECT t.id, m.data FROM trials t JOIN metrics m ON m.trial_id = t.id AND m.attempt = t.attempt"
        " WHERE m.type = 'PERIODICAL' AND t.id IN (SELECT value FROM json_each(?)) ORDER BY m.id"
    )
    found: dict[str, list[Any]] = {}
    stepped = learning_curves.load(connection, learning_curves.with_steps(connection, trial_ids))
    for trial_id, text in connection.execute(query, (json.dumps(list(trial_ids)),)):
        if trial_id not in stepped:
            found.setdefault(trial_id, []).append(json.loads(text, parse_constant=str))
    return found | {
        trial_id: [json.loads(point.data, parse_constant=str) for point in curve] for trial_id, curve in stepped.items()
    }


def attempt_number(connection: sqlite3.Connection, trial_id: str) -> int:
    """Number of a trial's current attempt. Raises NotFound."""
    row = connection.execute("SELECT attempt FROM trials WHERE id = ?", (trial_id,)).fetchone()
    if row is None:
        raise NotFound(f"cannot find trial {trial_id}")
    return int(row[0])


def metrics(
    connection: sqlite3.Connection, *, trial_id: str | None, type: str | None, after: int, limit: int, offset: int = 0
) -> str:
    """``{"metrics": […]}`` in the order they were stored, `limit` after skipping `offset`; `after`: only those with a
    greater id."""
    query = (
        "SELECT json_object('metrics', json_group_array(json(metric))) FROM"
        f" (SELECT {_METRIC} AS metric FROM metrics m WHERE {_wanted_metrics(trial_id, type)}"
        " ORDER BY m.id LIMIT :limit OFFSET :offset)"
    )
    return _one(connection, query, trial_id=trial_id, type=type, after=after, limit=limit, offset=offset)


def metrics_since(
    connection: sqlite3.Connection, trial_id: str | None, type: str | None, after: int, limit: int
) -> list[tuple[int, str]]:
    """(id, JSON on one line as in the list) of the metrics after an id."""
    query = f"SELECT m.id, {_METRIC} FROM metrics m WHERE {_wanted_metrics(trial_id, type)} ORDER BY m.id LIMIT :limit"
    values = {"trial_id": trial_id, "type": type, "after": after, "limit": limit}
    return connection.execute(query, values).fetchall()


def last_metric(connection: sqlite3.Connection) -> int:
    """The id of the metric that was stored last; 0: there is none."""
    (found,) = connection.execute("SELECT max(id) FROM metrics").fetchone()
    return found or 0


def _wanted_metrics(trial_id: str | None, type: str | None) -> str:
    wheres = ["m.id > :after"]
    wheres += ["m.trial_id = :trial_id"] if trial_id else []
    wheres += ["m.type = :type"] if type else []
    return " AND ".join(wheres)


def counts(connection: sqlite3.Connection) -> dict[str, int]:
    """Trials by status, without zeros."""
    return dict(connection.execute("SELECT status, count(*) FROM trials GROUP BY status").fetchall())


def best(connection: sqlite3.Connection, *, maximize: bool) -> tuple[str, float, str] | None:
    """(trial id, final value, parameter record) of the best succeeded trial; None: none has a finite result."""
    order = "DESC" if maximize else "ASC"
    row = connection.execute(
        f"SELECT id, final_value, record FROM trials WHERE status = 'SUCCEEDED' AND {_FINITE.format('final_value')}"
        f" ORDER BY final_value {order}, sequence_id LIMIT 1"
    ).fetchone()
    return row and (row[0], row[1], row[2])


def commonest_failure(connection: sqlite3.Connection) -> tuple[int, str, str, str, str] | None:
    """(count, id, reason, message, last words) of the most frequent failure key, with its newest trial; None: none."""
    query = (
        "SELECT f.number, t.id, t.reason, t.message, t.last_words FROM trials t JOIN"
        " (SELECT count(*) AS number, max(end_order) AS newest FROM trials WHERE failure_key <> ''"
        " GROUP BY failure_key ORDER BY number DESC, newest DESC LIMIT 1) f ON t.end_order = f.newest"
    )
    row: tuple[int, str, str, str, str] | None = connection.execute(query).fetchone()
    return row


def _one(connection: sqlite3.Connection, query: str, **values: object) -> str:
    return str(connection.execute(query, values).fetchone()[0])
