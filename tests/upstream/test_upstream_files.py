"""Files that the SDK writes without a command channel, as NNI 2.x always does; the keeper reads these bytes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from trial_runner import protocol

if TYPE_CHECKING:
    from conftest import UpstreamTrial

pytestmark = [pytest.mark.upstream, pytest.mark.timeout(1200)]  # the first test of a session may install nni

CODE = """if True:
    import nni
    nni.get_next_parameter()
    nni.report_intermediate_result(0.5)
    nni.report_intermediate_result({"default": 0.25, "note": "Größe"})
    nni.report_final_result(float("nan"))
"""
RECORDS = [
    r'{"parameter_id": 3, "trial_job_id": "abcde", "type": "PERIODICAL", "sequence": 0, "value": "0.5"}',
    r'{"parameter_id": 3, "trial_job_id": "abcde", "type": "PERIODICAL", "sequence": 1, '
    r'"value": "{\"default\": 0.25, \"note\": \"Gr\\u00f6\\u00dfe\"}"}',
    r'{"parameter_id": 3, "trial_job_id": "abcde", "type": "FINAL", "sequence": 0, "value": "NaN"}',
]


@pytest.fixture
def trial(upstream_trial: UpstreamTrial) -> UpstreamTrial:
    del upstream_trial.environment[protocol.ENV_COMMAND_CHANNEL]
    return upstream_trial


def test_metrics_file_is_written_byte_by_byte(trial: UpstreamTrial) -> None:
    trial.run("-c", CODE)
    written = (trial.folder / protocol.METRICS_FILE).read_bytes()
    # ME, six digits, the record and a newline that the digits count
    first, second, third = (record.encode() + b"\n" for record in RECORDS)
    assert written == b"ME000098" + first + b"ME000147" + second + b"ME000093" + third
    assert trial.outboxes() == []


def test_values_in_the_metrics_file_are_json_within_json(trial: UpstreamTrial) -> None:
    trial.run("-c", CODE)
    rest = (trial.folder / protocol.METRICS_FILE).read_bytes()
    values = []
    start = len(protocol.METRICS_FILE_MARK) + protocol.METRICS_FILE_DIGITS
    while rest:
        assert rest.startswith(protocol.METRICS_FILE_MARK)
        end = start + int(rest[len(protocol.METRICS_FILE_MARK) : start])
        values.append(json.loads(json.loads(rest[start:end])["value"]))
        rest = rest[end:]
    assert values[:2] == [0.5, {"default": 0.25, "note": "Größe"}] and values[2] != values[2]


def test_sdk_writes_to_stdout_on_other_platforms(trial: UpstreamTrial) -> None:
    trial.environment[protocol.ENV_PLATFORM] = "kubeflow"
    assert trial.run("-c", CODE).stdout.splitlines() == [f"NNISDK_MEb'{record}'" for record in RECORDS]
    assert (trial.folder / protocol.METRICS_FILE).read_bytes() == b""
