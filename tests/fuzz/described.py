"""Calls generated from the API's description: valid and invalid, with existing and unknown ids."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Iterator
from random import Random
from typing import Any

import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import APIOperation, Case, GenerationMode
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi import checks

from tests.fuzz.report import LONGEST_S, Report
from tests.fuzz.target import Target, on_any_port

#: Ends the daemon, so it is not called.
_LEFT_OUT = ("stopDaemon",)
#: Endless answers.
_STREAMS = ("followExperiments", "followExperiment", "followTrials", "followMetrics")
#: Values for parameters, in addition to their rules.
_SAID = ("title", "description", "examples")
#: Share of calls about existing objects.
_AIMED = 0.8
#: Number of calls between two refreshes of the existing objects.
_RENEW = 100
_CONFORMANCE = [
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]

schemathesis.serializer.alias("application/gzip", "application/octet-stream")  # it knows of no archives


def groups(target: Target) -> dict[str, list[APIOperation]]:
    """Operations by their first tag; those without a tag are `probes`."""
    document = requests.get(f"{target.base}/api/v1/openapi.json", timeout=LONGEST_S).json()
    found: dict[str, list[APIOperation]] = {}
    for result in schemathesis.openapi.from_dict(document).get_all_operations():
        operation = result.ok()
        if operation.definition.raw["operationId"] not in _LEFT_OUT:
            found.setdefault(operation.definition.raw["tags"][0], []).append(operation)
    return found


def shoot(target: Target, group: str, operations: list[APIOperation], calls: int, seed: int) -> Report:
    """At least `calls` calls, divided among operations, and for each into valid and invalid ones."""
    report = Report(group)
    with requests.Session() as session:
        session.trust_env = False
        gun = _Gun(target, session, report, Random(seed))
        share = -(-calls // (len(operations) * len(GenerationMode)))
        for operation in operations:
            target.renew()
            for mode in GenerationMode:
                _generate(gun, operation, mode, share, seed)
    return report


def _generate(gun: _Gun, operation: APIOperation, mode: GenerationMode, calls: int, seed: int) -> None:
    """Send this number of calls. Operations without invalid calls get valid ones instead."""
    wanted, turn = gun.report.calls + calls, 0
    if mode.is_negative and _takes_any_words(operation.definition.raw):
        mode, seed = GenerationMode.POSITIVE, seed + calls  # others than the right ones
    while gun.report.calls < wanted and turn < calls:
        turn += 1
        try:
            _rounds(gun, operation.as_strategy(generation_mode=mode), wanted - gun.report.calls, seed + turn)
        except Unsatisfiable:
            assert mode.is_negative, operation.label
            mode = GenerationMode.POSITIVE


def _takes_any_words(described: dict[str, Any]) -> bool:
    """Whether only the path can vary, by bytes: hypothesis would search hundreds of valid calls for an invalid one."""
    places = described.get("parameters", [])
    contents = described.get("requestBody", {}).get("content", {})
    return (
        bool(places)
        and all(one["in"] == "path" and _is_any_word(one["schema"]) for one in places)
        and all(one["schema"].get("format") == "binary" for one in contents.values())
    )


def _is_any_word(schema: dict[str, Any]) -> bool:
    return {name: rule for name, rule in schema.items() if name not in _SAID} == {"type": "string"}


def _rounds(gun: _Gun, cases: st.SearchStrategy[Case], calls: int, seed: int) -> None:
    """At most this number of calls; fewer if there is less to vary."""

    @seeded(seed)
    @settings(
        max_examples=calls,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=cases, extra=_EXTRA)
    def fire(case: Case, extra: dict[str, str]) -> None:
        gun.fire(case, extra)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fire()


_WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
#: Query parameters, most of them unknown.
_EXTRA = st.dictionaries(
    st.sampled_from(["limit", "offset", "status", "order", "after", "type", "", "x", "token"]), _WORDS, max_size=2
)


class _Gun:
    def __init__(self, target: Target, session: requests.Session, report: Report, chance: Random) -> None:
        self.report = report
        self._target = target
        self._session = session
        self._chance = chance

    def fire(self, case: Case, extra: dict[str, str]) -> None:
        if self._chance.random() < _AIMED:
            self._aim(case)
        if not isinstance(case.body, bytes):
            case.body = on_any_port(case.body)
        shown = f"{case.method} {case.path} {case.path_parameters} {case.query} {extra} body={str(case.body)[:200]}"
        began = time.perf_counter()
        try:
            status, body, response = self._ask(case, extra)
        except (requests.exceptions.InvalidURL, requests.exceptions.InvalidHeader, UnicodeError, ValueError):
            return  # no client can send that
        except requests.exceptions.RequestException as error:
            self.report.complain("no answer", f"{shown}: {error!r}")
            return
        self.report.take(shown, status, body, time.perf_counter() - began)
        if response is not None and not extra:
            self._conform(case, response, shown)
        if self.report.calls % _RENEW == 0:
            self._target.renew()

    def _aim(self, case: Case) -> None:
        """Call an existing object."""
        given = case.path_parameters
        if isinstance(given, dict):
            experiment = self._chance.choice(self._target.experiments)
            found = {"id": experiment, "trialId": self._target.trial(experiment, self._chance)}
            found["name"] = self._chance.choice(_NAMES)
            given.update({name: value for name, value in found.items() if name in given})
        if case.operation.definition.raw["operationId"] == "createExperiment":
            case.body, case.media_type = _creation(self._target, self._chance), "application/json"

    def _ask(self, case: Case, extra: dict[str, str]) -> tuple[int, str, requests.Response | None]:
        arguments = case.as_transport_kwargs(base_url=self._target.base)
        arguments["params"] = [*_pairs(arguments.get("params")), *extra.items()]
        streams = case.operation.definition.raw["operationId"] in _STREAMS
        with self._session.request(**arguments, timeout=LONGEST_S, stream=streams, allow_redirects=False) as response:
            if streams and response.status_code == 200:
                return 200, next(response.iter_content(1 << 16), b"").decode(errors="replace"), None
            return response.status_code, response.content.decode(errors="replace"), response

    def _conform(self, case: Case, response: requests.Response, shown: str) -> None:
        """Check that an answer matches the description."""
        try:
            case.validate_response(response, checks=_CONFORMANCE)
        except FailureGroup as error:
            for failure in error.exceptions:
                self.report.complain(f"{case.method} {case.path}: {failure.title}", f"{shown}\n{failure.message[:600]}")


_NAMES = ["stdout", "stderr", "trial.log", "nnimanager.log", "dispatcher.log", "../db/nni.sqlite", "..", "%00", "a/b"]


def _pairs(params: Any) -> Iterator[tuple[str, Any]]:
    yield from params.items() if isinstance(params, dict) else params or ()


def _creation(target: Target, random: Random) -> dict[str, Any]:
    """A valid submission, usually with an error inserted."""
    config = target.config()
    for _ in range(random.choice([0, 1, 1, 2, 3])):
        config[random.choice(_FIELDS)] = random.choice(_VALUES)
    text = json.dumps(config)
    if random.random() < 0.2:
        place = random.randrange(len(text))
        text = text[:place] + random.choice(["", "\0", "}", "\t", "\u2028", "😀", "- "]) + text[place + 1 :]
    return {"config": text, "directory": str(target.code), "environment": {"PATH": "/usr/bin:/bin"}}


#: Excludes the command and the working directory: calls must stay inside their folder.
_FIELDS = [
    "searchSpace",
    "trialConcurrency",
    "maxTrialNumber",
    "maxExperimentDuration",
    "maxTrialDuration",
    "tuner",
    "assessor",
    "trainingService",
    "experimentName",
    "logLevel",
    "debug",
    "trialGpuNumber",
    "versionCheck",
    "maxFailedTrials",
    "maxSameFailures",
    "maxUnusableResults",
    "maxTrialRetries",
    "keepCheckpoints",
    "metricGrace",
    "nniManagerIp",
    "trialCodeDirectory",
    "searchSpaceFile",
    "useAnnotation",
    "sharedStorage",
    "tunerGpuIndices",
    "nonsense",
    "",
    "advisor",
    "deprecated",
]
_VALUES: list[Any] = [
    None,
    True,
    False,
    0,
    1,
    -1,
    2**31,
    2**63,
    2**64,
    1e308,
    0.1,
    "",
    " ",
    "0",
    "1h",
    "-5s",
    "1e9d",
    "\0",
    "😀" * 50,
    "../..",
    "/etc",
    "no such",
    [],
    [[]],
    [None],
    {},
    {"name": "TPE"},
    {"name": "Random", "classArgs": {"seed": "x"}},
    {"name": "GridSearch"},
    {"className": "a.b", "codeDirectory": "."},
    {"platform": "local"},
    {"platform": None},
    {"platform": "scripted"},
    [{"platform": "local"}] * 2,
    {"x": {"_type": "choice", "_value": []}},
    {"x": {"_type": "uniform", "_value": [1, 0]}},
    {"x": {"_type": "randint", "_value": [0, 2**70]}},
    {"": {}},
    {"x": {"_type": "lognormal", "_value": [1e300, 1e300]}},
    "x" * 10_000,
    json.loads("[" * 200 + "]" * 200),
]
