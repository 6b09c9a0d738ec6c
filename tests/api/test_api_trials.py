"""Trials and metrics: lists as bytes, one trial with its evidence, added trials, kill."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from nni_manager.api.schemas.trials import MetricList, TrialList, TrialWithAttempts
from nni_manager.api.trials import TrialOrder
from nni_manager.store.experiment.answers import TRIAL_ORDERS
from tests.api.world import World

pytestmark = pytest.mark.unit

SEEDED = "/api/v1/experiments/seeded"


@pytest.fixture
async def seeded(world: World) -> World:
    await world.add("seeded")
    return world


async def ids(api: httpx.AsyncClient, **query: Any) -> list[str]:
    answer = await api.get(f"{SEEDED}/trials", params=query)
    assert answer.status_code == 200, answer.text
    TrialList.model_validate_json(answer.content)  # the description matches the answer
    return [trial["id"] for trial in answer.json()["trials"]]


def test_every_order_of_the_store_is_offered() -> None:
    assert {order.value for order in TrialOrder} == set(TRIAL_ORDERS)


@pytest.mark.usefixtures("seeded")
async def test_trials_are_ordered_filtered_and_paged(api: httpx.AsyncClient) -> None:
    everything = ["good1", "nannn", "infin", "fails", "waits"]
    assert await ids(api) == everything
    assert await ids(api, order="-sequence") == everything[::-1]
    assert (await ids(api, order="final"))[:1] == ["good1"]
    assert (await ids(api, order="-final"))[:1] == ["good1"]
    assert await ids(api, status="SUCCEEDED") == ["good1", "nannn", "infin"]
    assert await ids(api, limit=2, offset=1) == ["nannn", "infin"]
    page = (await api.get(f"{SEEDED}/trials", params={"limit": 1, "status": "SUCCEEDED"})).json()
    assert page["total"] == 3 and len(page["trials"]) == 1


@pytest.mark.usefixtures("seeded")
async def test_results_without_a_json_word_keep_their_text(api: httpx.AsyncClient) -> None:
    by_id = {trial["id"]: trial for trial in (await api.get(f"{SEEDED}/trials")).json()["trials"]}
    finals = {id_: (trial["finalValue"], trial["finalResult"]) for id_, trial in by_id.items()}
    assert finals == {
        "good1": (0.875, "0.875"),
        "nannn": (None, "NaN"),
        "infin": (None, '{"default": -Infinity, "loss": 3}'),
        "fails": (None, None),
        "waits": (None, None),
    }
    assert by_id["waits"]["wait"] == {
        "code": "CONCURRENCY",
        "sentence": "waits for a free slot",
        "details": {},
    }


@pytest.mark.usefixtures("seeded")
async def test_one_trial_shows_the_evidence_of_its_attempts(api: httpx.AsyncClient) -> None:
    answer = await api.get(f"{SEEDED}/trials/fails")
    trial = TrialWithAttempts.model_validate_json(answer.content)
    assert (trial.status, trial.reason, trial.message) == ("FAILED", "USER_CODE", "exit code 1")
    (attempt,) = trial.attempts
    assert (attempt.exit_code, attempt.stderr_tail) == (1, "Traceback\nValueError: no data")


@pytest.mark.usefixtures("seeded")
async def test_metrics_can_be_followed(api: httpx.AsyncClient) -> None:
    answer = await api.get(f"{SEEDED}/metrics")
    everything = MetricList.model_validate_json(answer.content).metrics
    assert [(one.trial_id, one.type, one.result) for one in everything[:3]] == [
        ("good1", "PERIODICAL", "0.5"),
        ("good1", "PERIODICAL", "0.75"),
        ("good1", "FINAL", "0.875"),
    ]
    later = (await api.get(f"{SEEDED}/metrics", params={"after": everything[2].id})).json()["metrics"]
    assert [one["trialId"] for one in later] == ["nannn", "nannn", "infin"]
    finals = (await api.get(f"{SEEDED}/metrics", params={"trial": "good1", "type": "FINAL"})).json()["metrics"]
    assert [one["value"] for one in finals] == [0.875]


@pytest.mark.usefixtures("seeded")
@pytest.mark.parametrize(
    "query",
    [
        "trials?limit=0",
        "trials?limit=10001",
        "trials?limit=x",
        "trials?offset=-1",
        "trials?status=BORED",
        "trials?order=random",
        "metrics?type=NEITHER",
        "metrics?after=-1",
        f"metrics?offset={10**30}",
        "trials/good1/logs/stdout?offset=x",
        "trials/good1/logs/stdout?attempt=0",
    ],
)
async def test_a_wrong_query_names_its_field(api: httpx.AsyncClient, query: str) -> None:
    answer = await api.get(f"{SEEDED}/{query}")
    field = query.partition("?")[2].partition("=")[0]
    assert answer.status_code == 400 and answer.json()["error"].startswith(f"{field}: "), answer.text


async def test_a_person_adds_a_trial_and_kills_it(api: httpx.AsyncClient, world: World) -> None:
    id_ = (await api.post("/api/v1/experiments", json=world.config())).json()["id"]
    trials = f"/api/v1/experiments/{id_}/trials"
    added = await api.post(trials, json={"parameters": {"x": 3}})
    assert added.status_code == 201 and added.json()["sequenceId"] == 0
    trial = f"{trials}/{added.json()['id']}"
    experiment = world.commands.at_work(id_)
    assert experiment is not None
    with experiment.changes.watch() as news:
        while (await api.get(trial)).json()["status"] != "RUNNING":
            await news.wait()
            news.clear()
        killed = await api.post(f"{trial}/kill")
        assert (killed.status_code, killed.content) == (202, b"")
        while (found := (await api.get(trial)).json())["status"] == "RUNNING":
            await news.wait()
            news.clear()
    assert (found["status"], found["parameterSource"], found["stopRequest"]) == ("USER_CANCELED", "customized", "USER")
    assert (await api.post(f"{trial}/kill")).status_code == 202


async def test_trials_beyond_the_limit_are_refused(api: httpx.AsyncClient, world: World) -> None:
    id_ = (await api.post("/api/v1/experiments", json=world.config(maxTrialNumber=1))).json()["id"]
    trials = f"/api/v1/experiments/{id_}/trials"
    assert (await api.post(trials, json={"parameters": [1, 2]})).status_code == 201
    refused = await api.post(trials, json={"parameters": {}})
    assert refused.status_code == 409 and "maxTrialNumber" in refused.json()["error"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("{}", "parameters"),
        ('{"parameters": {"x": NaN}}', "parameters"),
        ('{"parameters": 1, "status": "DONE"}', "status"),
        ("", "body is missing"),
        ("{", "not JSON"),
        *((body, "the body must be a JSON object") for body in ("[]", "1", "null", '"x"')),
    ],
)
async def test_parameters_that_cannot_be_used_are_refused(
    api: httpx.AsyncClient, world: World, body: str, words: str
) -> None:
    id_ = (await api.post("/api/v1/experiments", json=world.config())).json()["id"]
    headers = {"Content-Type": "application/json"}
    answer = await api.post(f"/api/v1/experiments/{id_}/trials", content=body, headers=headers)
    assert answer.status_code == 400 and words in answer.json()["error"], answer.text
    assert ("content type" in answer.json()["error"]) is not bool(body), "which is right"


async def test_form_of_another_site_is_not_json(api: httpx.AsyncClient, world: World) -> None:
    """Browsers let any page send text/plain."""
    id_ = (await api.post("/api/v1/experiments", json=world.config())).json()["id"]
    headers = {"Content-Type": "text/plain"}
    answer = await api.post(f"/api/v1/experiments/{id_}/trials", content='{"parameters": {}}', headers=headers)
    assert answer.status_code == 400 and "application/json" in answer.json()["error"]


async def test_a_trial_that_repeats_another_says_so(api: httpx.AsyncClient, world: World) -> None:
    id_ = (await api.post("/api/v1/experiments", json=world.config())).json()["id"]
    trials = f"/api/v1/experiments/{id_}/trials"
    origin = (await api.post(trials, json={"parameters": {"x": 3}})).json()["id"]
    again = await api.post(trials, json={"parameters": {"x": 4}, "repeats": origin})
    assert (await api.get(f"{trials}/{again.json()['id']}")).json()["repeats"] == origin
    unknown = await api.post(trials, json={"parameters": {"x": 4}, "repeats": "zzzzz"})
    assert unknown.status_code == 404 and "cannot find trial zzzzz to repeat" in unknown.json()["error"]
