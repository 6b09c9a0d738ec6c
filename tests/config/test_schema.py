"""The JSON schema of experiment files: it accepts the files that are valid, and refuses mistakes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

from nni_manager.config.schema import experiment_schema
from tests.config.conftest import MINIMAL
from tests.config.test_nni_examples import EXAMPLES

pytestmark = pytest.mark.unit

SCHEMA = jsonschema_rs.validator_for(experiment_schema())
ROOT = Path(__file__).parents[2]
FILES = [
    *sorted((ROOT / "configs").glob("*.yml")),
    *sorted(EXAMPLES.glob("v2-*.yml")),
    *sorted((EXAMPLES.parent / "examples" / "valid").glob("*.yml")),
]
#: Valid files with fields in other spellings, such as `trial_concurrency`, which a schema cannot list.
OTHER_SPELLINGS = {"v2-local-inline.yml", "local-inline.yml", "own-fields.yml"}
SECOND = [path for path in FILES if "trainingServicePlatform" not in path.read_text()]


def refused(value: object) -> list[str]:
    return [f"{'.'.join(map(str, error.instance_path))}: {error.message}" for error in SCHEMA.iter_errors(value)]


def with_fields(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in {**MINIMAL, **fields}.items() if value is not ...}


def test_there_are_enough_files() -> None:
    assert len(SECOND) >= 35


@pytest.mark.parametrize("path", SECOND, ids=lambda path: path.name)
def test_valid_file_is_accepted(path: Path) -> None:
    assert bool(refused(yaml.safe_load(path.read_text()))) == (path.name in OTHER_SPELLINGS)


def test_null_field_is_not_set() -> None:
    assert refused(with_fields(maxTrialNumber=None, assessor=None)) == []


@pytest.mark.parametrize(
    "fields",
    [
        {"trialConcurrencyy": 1},
        {"trialConcurrency": ...},
        {"trialConcurrency": 0},
        {"trialConcurrency": "2"},
        {"trialConcurrency": 100_001},
        {"maxTrialDuration": "soon"},
        {"trialGpuMemory": "4 elephants"},
        {"maxFailedTrials": "100%"},
        {"logLevel": "loud"},
        {"tunerGpuIndices": []},
        {"searchSpace": ...},
        {"tuner": ...},
        {"tuner": {"name": "TPE", "classArgs": {"gama": 1}}},
        {"tuner": {"name": "TPE", "classArgs": {"tpe_args": {"gamma": 0}}}},
        {"tuner": {"name": "TPE", "className": "a.B"}},
        {"assessor": {"name": "Medianstop", "classArgs": {"start_step": -1}}},
        {"trainingService": {"platform": "nowhere"}},
        {"trainingService": {"platform": "local", "maxTrialNumberPerGpu": 0}},
        {"trainingService": {"platform": "local", "machineList": []}},
        {"trainingService": {"platform": "remote"}},
        {"trainingService": []},
        {"sharedStorage": {"storageType": "FTP"}},
    ],
)
def test_mistake_is_refused(fields: dict[str, Any]) -> None:
    assert refused(with_fields(**fields))
