"""`/metrics` of a real daemon."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.live_daemon import Daemon

pytestmark = [pytest.mark.acceptance]

TRIAL = """echo '{"type": "intermediate", "value": 1}' >> "$NNI_OUTBOX"; echo '{"type": "final", "value": 7}' >> \
"$NNI_OUTBOX"; [ "$NNI_TRIAL_SEQ_ID" != 3 ] || exit 3"""
ON = """echo '{"type": "final", "value": 7}' >> "$NNI_OUTBOX"; exec sleep 1000"""


def scrape(daemon: Daemon) -> dict[str, float]:
    """Sample, with its labels as text, → value."""
    with daemon.client() as client:
        text = client.get("/metrics").text
    return {
        f"{sample.name}{sorted(sample.labels.values()) or ''}": sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_prometheus_counts_work(daemon: Daemon, code: Path) -> None:
    config = {
        "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
        "trialCommand": TRIAL,
        "trialCodeDirectory": ".",
        "trialConcurrency": 2,
        "maxTrialNumber": 6,
        "tuner": {"name": "Random", "classArgs": {"optimize_mode": "maximize"}},
        "trainingService": {"platform": "local"},
    }
    before = scrape(daemon)
    assert before["nni_manager_keeper_needed"] == before["nni_manager_metrics_stored_total"] == 0
    done, on = daemon.create(config, code), daemon.create({**config, "trialCommand": ON, "maxTrialNumber": 1}, code)
    daemon.wait(done, "DONE")
    daemon.wait_for(on, lambda state: state["counts"].get("RUNNING") == 1)
    found = scrape(daemon)
    assert found[f"nni_manager_trials{sorted([done, 'SUCCEEDED'])}"] == 5
    assert found[f"nni_manager_trials{sorted([done, 'FAILED'])}"] == 1
    assert found[f"nni_manager_trials{sorted([on, 'RUNNING'])}"] == 1
    assert found["nni_manager_experiments['DONE']"] == 1
    assert found["nni_manager_keeper_needed"] == found["nni_manager_keeper_up"] == 1
    assert found["nni_manager_metrics_stored_total"] in (12, 13)  # the running trial may not have reported yet
    assert found["nni_manager_loop_turn_seconds_count"] > before["nni_manager_loop_turn_seconds_count"]
    assert found["nni_manager_store_commit_seconds_sum"] > before["nni_manager_store_commit_seconds_sum"]
    assert found["nni_manager_open_listeners['control']"] == 1
    assert found["process_cpu_seconds_total"] >= before["process_cpu_seconds_total"] > 0
