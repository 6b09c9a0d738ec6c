"""One trial: its page, files and logs, and running it again, unchanged or changed."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from typing import Any

import httpx
import pytest

from tests.api.world import World
from tests.web.test_pages import Page, create, get

pytestmark = pytest.mark.unit

SEEDED = "/experiments/seeded/trials"


async def test_trial_is_found_by_number_and_by_id(visitor: httpx.AsyncClient, world: World) -> None:
    await world.add("seeded")
    for name in ("0", "good1"):
        page = await get(visitor, f"{SEEDED}/{name}")
        for words in (
            "Trial 0 good1",
            "SUCCEEDED",
            "0.875",
            "exit code 0",
            "2 intermediate results",
            "created, parameters",
        ):
            assert words in page.text, words
        assert "/experiments/seeded/trials/1" in page.values("a", "href")
    for missing in ("99", "zzzzz", "9" * 30, "x"):
        assert "cannot find trial" in (await get(visitor, f"{SEEDED}/{missing}", 404)).text


async def test_failed_trial_shows_its_reason(visitor: httpx.AsyncClient, world: World) -> None:
    await world.add("seeded")
    page = await get(visitor, f"{SEEDED}/3")
    for words in ("its command failed, exit code 1", "Traceback ValueError: no data"):
        assert words in page.text, words
    assert ("details", {"id": "stderr-details", "open": None}) in page.tags


async def test_waiting_trial_shows_its_reason(visitor: httpx.AsyncClient, world: World) -> None:
    await world.add("seeded")
    page = await get(visitor, f"{SEEDED}/4")
    assert "waits for a free slot" in page.text and "no attempt has been submitted yet" in page.text


async def test_drawer_is_the_trial_without_a_page(visitor: httpx.AsyncClient, world: World) -> None:
    await world.add("seeded")
    answer = await visitor.get(f"{SEEDED}/0?drawer=1")
    assert answer.status_code == 200 and "<html" not in answer.text and 'id="trial-title"' in answer.text
    sources = Page(answer.text).values("section", "data-source")
    assert sources and set(sources) == {"/experiments/seeded/trials/0?drawer=1"}


async def test_log_is_shown_without_scripts(visitor: httpx.AsyncClient, world: World) -> None:
    folder = await world.add("seeded")
    (folder.trials / "good1" / "stdout").write_text("<script>first</script>\n" + "x" * 300_000 + "\nlast\n")
    plain = await get(visitor, f"{SEEDED}/0")
    (link,) = [href for href in plain.values("a", "href") if href.endswith("?log=1.stdout#trial-log")]
    page = await get(visitor, link)
    assert "last" in page.text and "kB before this are not shown" in page.text and "first" not in page.text
    assert "trial.log does not exist yet" in (await get(visitor, f"{SEEDED}/0?log=1.trial.log")).text
    assert "log: must be TRIAL.ATTEMPT.NAME" in (await get(visitor, f"{SEEDED}/0?log=1.parameter.cfg", 400)).text


async def test_files_are_listed_and_downloaded(visitor: httpx.AsyncClient, world: World) -> None:
    folder = await world.add("seeded")
    attempt = folder.trials / "good1"
    (attempt / "out").mkdir()
    hostile = '"><img src=x onerror=alert(1)>.html'
    (attempt / "out" / hostile).write_text("<script>alert(1)</script>")
    (attempt / ".hidden").write_text("no")
    os.symlink("/etc/passwd", attempt / "link")
    page = await get(visitor, f"{SEEDED}/0")
    links = [href for href in page.values("a", "href") if "/files/" in href]
    assert [link.rpartition("/")[2] for link in links if "/out/" not in link] == ["parameter.cfg", "stderr", "stdout"]
    (link,) = [link for link in links if "/out/" in link]
    answer = await visitor.get(link)
    assert answer.status_code == 200 and answer.text == "<script>alert(1)</script>"
    assert answer.headers["content-disposition"].startswith("attachment;")
    assert answer.headers["content-type"] == "application/octet-stream"
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    for bad in (
        "1/.hidden",
        "1/link",
        "1/../../db/nni.sqlite",
        "1/%2e%2e/%2e%2e/db/nni.sqlite",
        "2/stdout",
        "x/stdout",
    ):
        assert (await visitor.get(f"{SEEDED}/0/files/{bad}")).status_code == 404, bad


NESTED = {
    "rate": {"_type": "loguniform", "_value": [0.0001, 0.1]},
    "size": {"_type": "randint", "_value": [2, 6]},
    "kind": {"_type": "choice", "_value": ["a", "b", None, 3]},
    "layer": {
        "_type": "choice",
        "_value": [
            {"_name": "conv", "width": {"_type": "randint", "_value": [1, 9]}},
            {"_name": "pool", "by": {"_type": "choice", "_value": ["max", "mean"]}},
        ],
    },
}
ONE = {"rate": 0.01, "size": 3, "kind": None, "layer": {"_name": "conv", "width": 5}}


async def added(visitor: httpx.AsyncClient, id_: str, parameters: Any) -> None:
    answer = await visitor.post(f"/api/v1/experiments/{id_}/trials", json={"parameters": parameters})
    assert answer.status_code == 201, answer.text


async def newest(visitor: httpx.AsyncClient, id_: str) -> dict[str, Any]:
    rows = (await visitor.get(f"/api/v1/experiments/{id_}/trials", params={"order": "-sequence"})).json()["trials"]
    found: dict[str, Any] = (await visitor.get(f"/api/v1/experiments/{id_}/trials/{rows[0]['id']}")).json()
    return found


async def test_trial_runs_again(visitor: httpx.AsyncClient, world: World) -> None:
    id_ = await create(world, visitor, searchSpace=NESTED)
    await added(visitor, id_, ONE)
    origin = await newest(visitor, id_)
    answer = await visitor.post(f"/experiments/{id_}/trials/0/again")
    assert (answer.status_code, answer.headers["location"]) == (303, f"/experiments/{id_}/trials/1")
    again = await newest(visitor, id_)
    assert (again["parameters"], again["repeats"], again["parameterSource"]) == (ONE, origin["id"], "customized")
    assert "repeats trial 0" in (await get(visitor, f"/experiments/{id_}/trials/1")).text
    assert "repeated by trial 1" in (await get(visitor, f"/experiments/{id_}/trials/0")).text


def filled(page: Page) -> dict[str, str]:
    """The fields of the form, as a browser sends them."""
    fields: dict[str, str] = {}
    select = ""
    for tag, attrs in page.tags:
        name, value = attrs.get("name") or "", attrs.get("value") or ""
        if tag == "select":
            select = name
        elif tag == "option" and "selected" in attrs and select:
            fields[select] = value
        elif tag == "input" and name.startswith("f"):
            fields[name] = value
    return fields


async def test_trial_is_changed_and_run(visitor: httpx.AsyncClient, world: World) -> None:
    id_ = await create(world, visitor, searchSpace=NESTED)
    await added(visitor, id_, {**ONE, "extra": [1]})
    path = f"/experiments/{id_}/trials/new?like=0"
    page = await get(visitor, path)
    fields = filled(page)
    assert fields == {"f0": "0.01", "f1": "3", "f2": "2", "f3": "0", "f4": "5", "f5": "0"}
    assert "a whole number from 2 to 5" in page.text and '"extra": [1]' in page.text
    answer = await visitor.post(path, data={**fields, "f0": "1e-3", "f3": "1", "f5": "1", "f4": "nonsense"})
    assert answer.status_code == 303, answer.text
    found = await newest(visitor, id_)
    assert found["parameters"] == {
        "extra": [1],
        "rate": 0.001,
        "size": 3,
        "kind": None,
        "layer": {"_name": "pool", "by": "mean"},
    }
    assert found["repeats"]


@pytest.mark.parametrize(
    ("field", "text", "words"),
    [
        ("f0", "fast", "must be a number such as 0.1 or 1e-3, not 'fast'"),
        ("f0", "nan", "must be a number"),
        ("f0", "1e999", "must be a number"),
        ("f0", "", "must be a number"),
        ("f1", "3.5", "must be a whole number, not '3.5'"),
        ("f2", "4", "must be one of the options"),
        ("f2", "kept", "must be one of the options"),
        ("f4", "<b>", "must be a whole number"),
    ],
)
async def test_invalid_value_is_refused_with_its_field(
    visitor: httpx.AsyncClient, world: World, field: str, text: str, words: str
) -> None:
    id_ = await create(world, visitor, searchSpace=NESTED)
    await added(visitor, id_, ONE)
    path = f"/experiments/{id_}/trials/new?like=0"
    answer = await visitor.post(path, data={**filled(await get(visitor, path)), field: text})
    page = Page(answer.text)
    assert answer.status_code == 400 and words in page.text
    (wrong,) = [attrs["name"] for tag, attrs in page.tags if attrs.get("aria-invalid") == "true"]
    assert wrong == field and (await newest(visitor, id_))["sequenceId"] == 0


async def test_value_outside_the_space_needs_a_confirmation(visitor: httpx.AsyncClient, world: World) -> None:
    id_ = await create(world, visitor, searchSpace=NESTED)
    await added(visitor, id_, {**ONE, "kind": "z"})
    path = f"/experiments/{id_}/trials/new?like=0"
    fields = {**filled(await get(visitor, path)), "f1": "77"}
    assert fields["f2"] == "kept"
    asked = await visitor.post(path, data=fields)
    page = Page(asked.text)
    assert asked.status_code == 400 and "outside the search space: a whole number from 2 to 5" in page.text
    assert "outside" in page.values("input", "name")
    answer = await visitor.post(path, data={**fields, "outside": "1"})
    assert answer.status_code == 303
    assert (await newest(visitor, id_))["parameters"] == {**ONE, "kind": "z", "size": 77}


async def test_form_without_a_known_space_takes_json(visitor: httpx.AsyncClient, world: World) -> None:
    id_ = await create(world, visitor)
    await added(visitor, id_, [1, 2])
    path = f"/experiments/{id_}/trials/new?like=0"
    assert "[ 1, 2 ]" in (await get(visitor, path)).text
    for text in ("{", "NaN", "[" * 100_000):
        assert (await visitor.post(path, data={"json": text})).status_code == 400
    assert (await visitor.post(path, data={"json": '{"x": 1}'})).status_code == 303
    assert (await newest(visitor, id_))["parameters"] == {"x": 1}


async def test_new_trial_form_starts_with_empty_fields(visitor: httpx.AsyncClient, world: World) -> None:
    id_ = await create(world, visitor, searchSpace=NESTED)
    path = f"/experiments/{id_}/trials/new"
    assert filled(await get(visitor, path))["f0"] == ""
    answer = await visitor.post(path, data={"f0": "0.01", "f1": "2", "f2": "0", "f3": "0", "f4": "1"})
    assert answer.status_code == 303
    found = await newest(visitor, id_)
    assert found["parameters"]["layer"] == {"_name": "conv", "width": 1} and found["repeats"] is None


HOSTILE = "\"><script>alert(1)</script>'<img src=x onerror=alert(2)>{{7*7}}javascript:alert(3)"


async def test_stored_text_injects_nothing(visitor: httpx.AsyncClient, world: World) -> None:
    """Hostile names, values, results, messages, places, links and stderr of a trial."""
    space = {HOSTILE: {"_type": "choice", "_value": [HOSTILE, {"a": HOSTILE}]}}
    folder = await world.add("seeded", searchSpace=space)
    values = {HOSTILE: {"_name": HOSTILE, "x": HOSTILE}}
    record = json.dumps({"parameter_id": 0, "parameter_source": "algorithm", "parameters": values})
    of_trial = {
        "record": record,
        "message": HOSTILE,
        "last_words": HOSTILE,
        "wait_sentence": HOSTILE,
        "wait_details": json.dumps({HOSTILE: HOSTILE}),
        "final_data": json.dumps(HOSTILE),
    }
    texts = ("message", "stderr_tail", "native_reason", "place", "service", "channel", "runner_version")
    of_attempt = {**dict.fromkeys(texts, HOSTILE), "link": "javascript:alert(1)"}
    with contextlib.closing(sqlite3.connect(folder.database)) as connection, connection:
        for table, row in (("trials", of_trial), ("attempts", of_attempt)):
            columns = ", ".join(f"{name} = ?" for name in row)
            connection.execute(f"UPDATE {table} SET {columns}", list(row.values()))
    paths = [f"{SEEDED}/{number}{more}" for number in range(5) for more in ("", "?drawer=1")]
    for path in [*paths, f"{SEEDED}/new?like=0", f"{SEEDED}/0?log=1.stderr"]:
        answer = await visitor.get(path)
        page = Page(answer.text)
        assert (answer.status_code == 200 and "alert(1)" in answer.text) or "new" in path
        assert "<script>alert" not in answer.text and "<img" not in answer.text
        assert not [attrs for _, attrs in page.tags if any(name.startswith("on") for name in attrs)]
        assert not [href for href in page.values("a", "href") if href.startswith("javascript:")]
