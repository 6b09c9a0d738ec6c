"""Calls of NNI's API, which has no description: valid and invalid ids, ranges, names and bodies."""

from __future__ import annotations

import json
import random
import time
from typing import Any
from urllib.parse import quote

import httpx

from tests.fuzz.report import LONGEST_S, Report
from tests.fuzz.target import Target, client

#: Number of calls between two refreshes of the existing objects.
_RENEW = 200
_ODD = [
    "",
    " ",
    ".",
    "..",
    "../..",
    "%00",
    "\0",
    "a" * 300,
    "😀",
    "'",
    '"',
    "-1",
    "0",
    "1e9",
    "NaN",
    "null",
    "%2e%2e%2f",
    "..%2F",
]
_NUMBERS = ["0", "1", "5", "-1", "99999999999999999999", "1.5", "x", "", "٣", "0x10", "1e3", " 1", "+1", "Infinity"]
_STATUSES = ["WAITING", "RUNNING", "SUCCEEDED", "FAILED", "USER_CANCELED", "nonsense", ""]
_UPDATES = ["TRIAL_CONCURRENCY", "MAX_EXEC_DURATION", "SEARCH_SPACE", "MAX_TRIAL_NUM", "", "nonsense"]
_FILES = [
    "trial.log",
    "stdout",
    "stderr",
    "model.onnx",
    "../../db/nni.sqlite",
    "..%2F..%2Fdb%2Fnni.sqlite",
    "parameter.cfg",
]
_LOGS = ["nnimanager.log", "dispatcher.log", "../db/nni.sqlite", "..%2fdb%2fnni.sqlite", "%2e%2e/db", "", "a/b"]
_VALUES: list[Any] = [
    None,
    True,
    0,
    -1,
    3,
    2**31,
    2**63,
    1e308,
    0.5,
    "",
    "5",
    "10m",
    "-1h",
    "x" * 1000,
    [],
    [1],
    [[]],
    {},
    {"a": None},
    {"parameter": {"x": 1}, "value": 1},
    [{"parameter": {"x": 0.5}, "value": 0.1}],
    [{"parameter": 1}],
    [{"value": "x"}],
    {"x": {"_type": "uniform", "_value": [0, 1]}},
    {"x": {"_type": "nonsense"}},
    {"trials": "a,b"},
    {"trials": 1},
    {"params": {"trialConcurrency": 2}},
    {"params": {"maxTrialNumber": 9}},
    {"params": None},
    {"params": []},
]
_BODIES = [
    b"",
    b"{",
    b"[",
    b"\xff\xfe",
    b'"',
    b"nul",
    b"{}" * 10,
    b"[" * 2000,
    b'{"a":1e999}',
    b'{"a":NaN}',
    b'"\\ud800"',
    b"1" * 5000,
]
_TYPES = ["application/json", "application/json; charset=utf-16", "text/plain", "", "application/x-www-form-urlencoded"]


def shoot(target: Target, calls: int, seed: int) -> Report:
    report, chance = Report("nni"), random.Random(seed)
    with client(target, LONGEST_S) as connection:
        while report.calls < calls:
            if report.calls % _RENEW == 0:
                target.renew()
            _fire(connection, _request(target, chance), report)
    return report


def _fire(connection: httpx.Client, request: dict[str, Any], report: Report) -> None:
    shown, began = str(request)[:400], time.perf_counter()
    try:
        answer = connection.request(**request)
    except (httpx.InvalidURL, httpx.LocalProtocolError, UnicodeError):
        return  # no client can send that
    except httpx.HTTPError as error:
        report.complain("no answer", f"{shown}: {error!r}")
        return
    report.take(shown, answer.status_code, answer.text, time.perf_counter() - began)


def _request(target: Target, chance: random.Random) -> dict[str, Any]:
    experiment = chance.choice(target.experiments) if chance.random() < 0.8 else _odd(chance)
    root = f"/experiments/{experiment}"
    trial = target.trial(experiment, chance) if chance.random() < 0.7 else _odd(chance)
    method, path, query = _place(trial, chance)
    if chance.random() < 0.05:
        method = chance.choice(["GET", "PUT", "POST", "DELETE", "PATCH", "OPTIONS", "HEAD"])
    request: dict[str, Any] = {"method": method, "url": f"{root}{path}", "params": query}
    if method in ("POST", "PUT", "DELETE"):
        request |= _body(chance)
    return request


def _place(trial: str, chance: random.Random) -> tuple[str, str, dict[str, str]]:
    api = "/api/v1/nni"
    low, high = chance.choice(_NUMBERS), chance.choice(_NUMBERS)
    return chance.choice(
        [
            ("GET", f"{api}/version", {}),
            ("GET", f"{api}/check-status", {}),
            ("GET", f"{api}/experiment", {}),
            ("POST", f"{api}/experiment", {}),
            ("PUT", f"{api}/experiment", {"update_type": chance.choice(_UPDATES)}),
            ("PUT", f"{api}/experiment", {"update_type": chance.choice(_UPDATES)}),
            ("PUT", f"{api}/experiment", {}),
            ("DELETE", f"{api}/experiment", {}) if chance.random() < 0.1 else ("GET", f"{api}/experiment", {}),
            ("POST", f"{api}/experiment/import-data", {}),
            ("GET", f"{api}/experiment/imported-data", {}),
            ("PUT", f"{api}/experiment/cluster-metadata", {}),
            ("GET", f"{api}/experiment-metadata", {}),
            ("GET", f"{api}/experiments-info", {}),
            ("GET", f"{api}/job-statistics", {}),
            ("GET", f"{api}/trial-jobs", {}),
            ("GET", f"{api}/trial-jobs", {"status": chance.choice(_STATUSES)}),
            ("GET", f"{api}/trial-jobs/{trial}", {}),
            ("POST", f"{api}/trial-jobs", {}),
            ("DELETE", f"{api}/trial-jobs/{trial}", {}),
            ("GET", f"{api}/metric-data", {}),
            ("GET", f"{api}/metric-data", {"type": chance.choice(["PERIODICAL", "FINAL", "", "x"])}),
            ("GET", f"{api}/metric-data/", {}),
            ("GET", f"{api}/metric-data/{trial}", {"type": "FINAL"}),
            ("GET", f"{api}/metric-data-range/{quote(low)}/{quote(high)}", {}),
            ("GET", f"{api}/metric-data-latest", {}),
            ("GET", f"{api}/trial-file/{trial}/{chance.choice(_FILES)}", {}),
            ("GET", f"{api}/export-data", {}),
            ("POST", f"{api}/tensorboard", {}),
            ("GET", f"{api}/tensorboard/{trial}", {}),
            ("PUT", f"{api}/tensorboard/{trial}", {}),
            ("DELETE", f"{api}/tensorboard/{trial}", {}),
            ("GET", f"{api}/tensorboard-tasks", {}),
            ("DELETE", f"{api}/tensorboard-tasks", {}),
            ("GET", f"{api}/{_odd(chance)}", {}),
            ("GET", api, {}),
            ("GET", f"/logs/{chance.choice(_LOGS)}", {}),
            ("GET", f"/logs/{_odd(chance)}", {}),
            ("GET", "/logs", {}),
        ]
    )


def _odd(chance: random.Random) -> str:
    found = chance.choice(_ODD)
    return found if "%" in found and chance.random() < 0.5 else quote(found, safe="")


def _body(chance: random.Random) -> dict[str, Any]:
    if chance.random() < 0.3:
        return {"content": chance.choice(_BODIES), "headers": {"Content-Type": chance.choice(_TYPES)}}
    content = json.dumps(chance.choice(_VALUES)).encode()
    kind = "application/json" if chance.random() < 0.9 else chance.choice(_TYPES)
    return {"content": content, "headers": {"Content-Type": kind}}
