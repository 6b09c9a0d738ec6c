"""The API describes itself completely: every operation, field, refusal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from nni_manager.api.application import create_api
from tests.api.world import World

pytestmark = pytest.mark.unit

PROBES = ("GET /healthz", "GET /readyz")

#: Method and path → (operation id, refusals besides 401, 403, 500 and 400, which all have for a query that is unknown).
#: Clients are generated from these names.
OPERATIONS = {
    "GET /healthz": ("getHealth", ""),
    "GET /readyz": ("getReadiness", "503"),
    "GET /metrics": ("getMetrics", ""),
    "GET /api/v1/daemon": ("getDaemon", "503"),
    "POST /api/v1/daemon/stop": ("stopDaemon", "413"),
    "POST /api/v1/experiments": ("createExperiment", "409 413 503"),
    "GET /api/v1/experiments": ("listExperiments", "503"),
    "POST /api/v1/experiments/stop": ("stopAllExperiments", "503"),
    "GET /api/v1/experiments/{id}": ("getExperiment", "404 503"),
    "PATCH /api/v1/experiments/{id}": ("changeExperiment", "404 409 413 503"),
    "DELETE /api/v1/experiments/{id}": ("deleteExperiment", "404 409 503"),
    "POST /api/v1/experiments/{id}/stop": ("stopExperiment", "404 503"),
    "PUT /api/v1/experiments/{id}/credentials": ("renewCredentials", "404 409 413 503"),
    "POST /api/v1/experiments/{id}/resume": ("resumeExperiment", "404 409 413 503"),
    "POST /api/v1/experiments/view": ("viewExperiment", "404 409 503"),
    "POST /api/v1/experiments/{id}/import": ("importResults", "404 409 413 503"),
    "GET /api/v1/experiments/{id}/trials": ("listTrials", "404 503"),
    "GET /api/v1/experiments/{id}/analysis/{question}": ("analyseTrials", "404 503"),
    "POST /api/v1/experiments/{id}/trials": ("addTrial", "404 409 413 503"),
    "GET /api/v1/experiments/{id}/trials/{trialId}": ("getTrial", "404 503"),
    "POST /api/v1/experiments/{id}/trials/{trialId}/kill": ("killTrial", "404 409 503"),
    "GET /api/v1/experiments/{id}/trials/{trialId}/logs/{name}": ("readTrialLog", "404 503"),
    "GET /api/v1/experiments/{id}/trials/{trialId}/files": ("listTrialFiles", "404 503"),
    "GET /api/v1/experiments/{id}/trials/{trialId}/files/{name}": ("readTrialFile", "404 503"),
    "GET /api/v1/experiments/{id}/logs/{name}": ("readExperimentLog", "404 503"),
    "GET /api/v1/experiments/{id}/metrics": ("listMetrics", "404 503"),
    "GET /api/v1/experiments/{id}/export": ("exportResults", "404 503"),
    "GET /api/v1/experiments/events": ("followExperiments", ""),
    "GET /api/v1/experiments/{id}/events": ("followExperiment", "404 503"),
    "GET /api/v1/experiments/{id}/trials/events": ("followTrials", "404 503"),
    "GET /api/v1/experiments/{id}/metrics/events": ("followMetrics", "404 503"),
    "GET /api/v1/platforms": ("showPlatforms", "503"),
    "GET /api/v1/experiments/{id}/provenance": ("getProvenance", "404 503"),
    "GET /api/v1/experiments/{id}/report": ("getReport", "404 503"),
    "GET /api/v1/experiments/{id}/disk": ("getDiskUse", "404 503"),
    "GET /api/v1/disk": ("getDisk", "503"),
    "POST /api/v1/experiments/{id}/tensorboards": ("startTensorBoard", "404 409 413 503"),
    "GET /api/v1/experiments/{id}/tensorboards": ("listTensorBoards", "404 503"),
    "DELETE /api/v1/experiments/{id}/tensorboards": ("stopTensorBoards", "404 503"),
    "DELETE /api/v1/experiments/{id}/tensorboards/{boardId}": ("stopTensorBoard", "404 503"),
    "POST /api/v1/platforms/clean": ("cleanPlatforms", "413 503"),
    "POST /api/v1/platforms/left": ("findLeft", "409 413 503"),
    "POST /api/v1/platforms/plan": ("planExperiment", "409 413 503"),
    "GET /api/v1/code/{sha256}": ("findCode", "404 503"),
    "PUT /api/v1/code/{sha256}": ("sendCode", "404 413 503"),
}


@pytest.fixture
def document(world: World) -> dict[str, Any]:
    return create_api(world.context).openapi()


def operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def test_operations_keep_their_names_and_state_their_refusals(document: dict[str, Any]) -> None:
    found = {}
    for name, operation in operations(document):
        everywhere = {"500"} if name in PROBES else {"401", "403", "500"}
        everywhere |= {"400"} if "/api/v1/" in name else set()
        refusals = {status for status in operation["responses"] if status >= "400"}
        assert everywhere <= refusals, name
        found[name] = (operation["operationId"], " ".join(sorted(refusals - everywhere)))
    assert found == OPERATIONS


def test_every_refusal_has_the_one_shape(document: dict[str, Any]) -> None:
    for name, operation in operations(document):
        for status, response in operation["responses"].items():
            if status >= "400":
                schema = response["content"]["application/json"]["schema"]
                assert schema == {"$ref": "#/components/schemas/Error"}, (name, status)
                assert response["description"], (name, status)


def test_every_operation_and_parameter_is_described(document: dict[str, Any]) -> None:
    tags = {tag["name"] for tag in document["tags"]}
    for name, operation in operations(document):
        assert operation["summary"] and operation["description"] and set(operation["tags"]) <= tags, name
        for parameter in operation.get("parameters", []):
            assert parameter["description"], (name, parameter)


def test_schemas_have_names_that_a_person_would_write(document: dict[str, Any]) -> None:
    for name, schema in document["components"]["schemas"].items():
        assert name.isalnum() and name[0].isupper(), name
        assert not ({"NewExperiment", "ExperimentFile"} & {schema.get("title")} - {name})
    assert {"ExperimentOrder", "TrialOrder", "NewExperiment", "ExperimentFile"} <= document["components"][
        "schemas"
    ].keys()


def test_every_list_says_what_is_in_it(document: dict[str, Any]) -> None:
    def look(node: Any) -> None:
        if isinstance(node, dict):
            assert node.get("type") != "array" or "items" in node, node
        for inner in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
            look(inner)

    look(document)


def test_every_field_is_described(document: dict[str, Any]) -> None:
    missing = [
        f"{name}.{field}"
        for name, schema in document["components"]["schemas"].items()
        for field, definition in schema.get("properties", {}).items()
        if not definition.get("description")
    ]
    assert missing == []


def test_times_say_their_unit(document: dict[str, Any]) -> None:
    for name, schema in document["components"]["schemas"].items():
        for field, definition in schema.get("properties", {}).items():
            if field in ("createdMs", "storedMs", "submittedMs", "startedMs") and name != "Attempt":
                assert "millisecond" in definition["description"] or "null" in definition["description"], (name, field)


def test_bodies_and_answers_have_schemas(document: dict[str, Any]) -> None:
    empty = {
        "deleteExperiment",
        "renewCredentials",
        "importResults",
        "killTrial",
        "stopTensorBoard",
        "stopTensorBoards",
    }
    for name, operation in operations(document):
        success = next(response for status, response in operation["responses"].items() if status < "300")
        assert operation["operationId"] in empty or all(media["schema"] for media in success["content"].values()), name
        assert (operation["operationId"] in empty) == ("content" not in success), name
        if "requestBody" in operation:
            assert all(media["schema"] for media in operation["requestBody"]["content"].values()), name


def test_events_have_schemas(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    for name, kinds in {
        "ListEvent": ["experiment", "removed"],
        "StateEvent": "state",
        "TrialEvent": "trial",
        "MetricEvent": "metric",
    }.items():
        kind = schemas[name]["properties"]["event"]
        assert kind.get("enum", kind.get("const")) == kinds and "data" in schemas[name]["properties"]
    for name, operation in operations(document):
        content = operation["responses"].get("200", {}).get("content", {})
        assert name.endswith("/events") == ("text/event-stream" in content), name
        assert not name.endswith("/events") or "$ref" in content["text/event-stream"]["schema"], name


def test_every_operation_says_whether_it_wants_a_token(document: dict[str, Any]) -> None:
    assert document["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    for name, operation in operations(document):
        assert operation["security"] == ([] if name in PROBES else [{"token": []}, {}]), name


async def test_document_is_served_without_other_hosts(api: httpx.AsyncClient) -> None:
    answer = await api.get("/api/v1/openapi.json")
    assert answer.status_code == 200 and answer.json()["info"]["version"] == "1.2.3"
    assert "://" not in answer.text.replace("http://host:port", "")
    assert (await api.get("/redoc")).status_code == 404
