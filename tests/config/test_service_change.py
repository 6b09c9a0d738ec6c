"""Sections that an experiment is to have from now on, against those that it has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nni_manager.config import service_change
from nni_manager.config.experiment_file import read
from nni_manager.config.service_change import ServiceChange
from nni_manager.domain.errors import InvalidInput
from nni_manager.domain.experiment import ExperimentSpec

pytestmark = pytest.mark.unit

SCRIPTED: dict[str, Any] = {"platform": "scripted", "launch": "process", "machines": [{"name": "m1", "places": 1}]}


def spec(tmp_path: Path, *sections: Any) -> ExperimentSpec:
    config = {
        "searchSpace": {"x": {"_type": "choice", "_value": [1]}},
        "trialCommand": "true",
        "trialConcurrency": 1,
        "tuner": {"name": "Random"},
        "trainingService": list(sections),
    }
    return read(json.dumps(config), directory=tmp_path, environment={}).spec


def change(before: ExperimentSpec, *sections: Any, **values: str) -> ExperimentSpec:
    return service_change.read(before, ServiceChange(sections=list(sections), secrets=values), {}, STORED).spec


STORED = {"stored:scripted.token": "hush"}


def test_fields_left_out_stay_unless_they_may_change(tmp_path: Path) -> None:
    before = spec(tmp_path, {**SCRIPTED, "token": "hush", "trialConcurrency": 3})
    after = change(before, {"platform": "scripted", "machines": [{"name": "m2", "places": 2}], "token": "hush"})
    (platform,) = after.platforms
    assert platform.settings["launch"] == "process"
    assert [machine["name"] for machine in platform.settings["machines"]] == ["m2"]  # type: ignore[attr-defined]
    assert platform.trial_concurrency is None
    assert platform.settings["token"] == "stored:scripted.token"


def test_names_that_positions_do_not_give_are_written(tmp_path: Path) -> None:
    before = spec(tmp_path, SCRIPTED, SCRIPTED, {"platform": "local"})
    after = change(before, {"platform": "scripted", "name": "scripted-2"}, {"platform": "local"})
    assert [one.service for one in after.platforms] == ["scripted-2", "local"]
    again = change(after, *after.canonical["trainingService"], {**SCRIPTED, "name": "scripted-3"})  # type: ignore[misc]
    assert [one.service for one in again.platforms] == ["scripted-2", "local", "scripted-3"]
    back = change(again, SCRIPTED, {**SCRIPTED, "name": "scripted-2"}, {"platform": "local"})
    assert [one.service for one in back.platforms] == ["scripted", "scripted-2", "local"]
    assert all("name" not in one for one in back.canonical["trainingService"])  # type: ignore[attr-defined]


def test_adapter_does_not_get_the_name(tmp_path: Path) -> None:
    (platform,) = spec(tmp_path, {**SCRIPTED, "name": "scripted-7"}).platforms
    assert platform.service == "scripted-7"
    assert "name" not in platform.settings


def test_a_masked_secret_is_refused(tmp_path: Path) -> None:
    before = spec(tmp_path, {**SCRIPTED, "token": "hush"})
    with pytest.raises(InvalidInput, match=r"trainingService\[0\]\.token: is masked"):
        change(before, {**SCRIPTED, "token": "******"})


def test_a_reference_needs_its_value(tmp_path: Path) -> None:
    before = spec(tmp_path, SCRIPTED)
    with pytest.raises(InvalidInput, match=r"refers to \$\{TOKEN\}, whose value is unknown here; send it"):
        change(before, {**SCRIPTED, "token": "${TOKEN}"})
    after = change(before, {**SCRIPTED, "token": "${TOKEN}"}, **{"${TOKEN}": "hush"})
    assert after.platforms[0].settings["token"] == "${TOKEN}"


def test_removed_service_returns_with_its_settings(tmp_path: Path) -> None:
    before, known = spec(tmp_path, {"platform": "local"}), {"scripted": spec(tmp_path, SCRIPTED).platforms[0].settings}
    wish = ServiceChange(sections=[{"platform": "local"}, {"platform": "scripted"}])
    after = service_change.read(before, wish, known, {}).spec
    assert after.platforms[1].settings["launch"] == "process"
    other = ServiceChange(sections=[{"platform": "scripted", "launch": "none"}])
    with pytest.raises(InvalidInput, match=r"launch: cannot be changed while scripted exists; .*machines.* can"):
        service_change.read(before, other, known, {})


def test_service_is_checked_unless_only_drains_change(tmp_path: Path) -> None:
    machine = {"host": "a", "user": "me", "password": "hush"}
    section = {"platform": "remote", "trialGpuNumber": 0, "machineList": [machine]}
    before = spec(tmp_path, section, SCRIPTED)

    def asked(*machines: Any, **others: Any) -> list[str]:
        after = spec(tmp_path, {**section, "machineList": list(machines), **others}, SCRIPTED)
        return [one.service for one in service_change.services_to_ask(before, after)]

    assert asked({**machine, "drain": True}) == []
    assert asked({**machine, "drain": True}, {**machine, "host": "b"}) == ["remote"]
    assert asked({**machine, "user": "you"}) == ["remote"]
    assert asked({**machine, "drain": True}, machineGracePeriod="1h") == ["remote"]
