"""A client generated from the API's description, used on a real daemon."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live_daemon import Daemon

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(180)]

PACKAGE = "made_client"
#: Parts that the generator may omit: YAML bodies of the same calls.
KNOWN_WARNINGS = ("application/yaml", "text/yaml", "application/x-yaml", "application/gzip")
CONFIG = {
    "searchSpace": {"x": {"_type": "choice", "_value": [1, 2]}},
    "trialCommand": """echo '{"type": "final", "value": 7}' >> "$NNI_OUTBOX"; exec sleep 1000""",
    "trialConcurrency": 1,
    "tuner": {"name": "Random", "classArgs": {"optimize_mode": "maximize"}},
    "trainingService": {"platform": "local"},
}


@pytest.fixture
def generated(listening: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, str]]:
    """The modules of a client by name, and the daemon's address."""
    with listening.client() as client:
        document = client.get("/api/v1/openapi.json").json()
        service = next(one for one in client.get("/api/v1/daemon").json()["listeners"] if one["kind"] == "service")
    (tmp_path / "openapi.json").write_text(json.dumps(document))
    tools = Path(sys.executable).parent
    done = subprocess.run(
        [
            tools / "openapi-python-client",
            "generate",
            "--path",
            tmp_path / "openapi.json",
            "--meta",
            "none",
            "--output-path",
            tmp_path / PACKAGE,
        ],
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"},
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    left_out = [line for line in said.splitlines() if line.startswith(("Unable", "Unsupported", "Failure", "Skipping"))]
    assert all(line.endswith(KNOWN_WARNINGS) for line in left_out), said
    monkeypatch.syspath_prepend(str(tmp_path))
    yield lambda name: importlib.import_module(f"{PACKAGE}.{name}"), service["address"]
    for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
        del sys.modules[name]


def test_generated_client_runs_an_experiment(generated: tuple[Any, str], code: Path) -> None:
    module, address = generated
    with module("client").Client(base_url=address) as client:
        new = module("models.new_experiment").NewExperiment(config=json.dumps(CONFIG), directory=str(code))
        made = module("api.experiments.create_experiment").sync(client=client, body=new)
        change = module("models.experiment_change").ExperimentChange(max_trial_number=3, experiment_name="made")
        changed = module("api.experiments.change_experiment").sync(made.id, client=client, body=change)
        assert (changed.name, changed.id) == ("made", made.id)
        order = module("models.trial_order").TrialOrder("-sequence")
        trials = module("api.trials.list_trials").sync(made.id, client=client, order=order)
        assert trials.total == len(trials.trials) <= 1
        listed = module("api.experiments.list_experiments").sync(client=client)
        assert [one.name for one in listed.experiments] == ["made"]
        assert made.id in module("api.experiments.stop_all_experiments").sync(client=client).stopped
