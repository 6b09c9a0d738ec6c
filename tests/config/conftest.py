from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from nni_manager.config.experiment_file import load
from nni_manager.domain.errors import ConfigInvalid, Problem
from nni_manager.domain.experiment import ExperimentSpec

MINIMAL: Mapping[str, Any] = {
    "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
    "trialCommand": "python3 fit.py",
    "trialConcurrency": 1,
    "tuner": {"name": "Random"},
    "trainingService": {"platform": "local"},
}

Load = Callable[..., ExperimentSpec]
Refusals = Callable[..., list[Problem]]


@pytest.fixture
def load_with(tmp_path: Path) -> Load:
    """Loads the minimal config with fields changed; None takes a field away."""

    def load_changed(**fields: Any) -> ExperimentSpec:
        return load(yaml.safe_dump({**MINIMAL, **fields}, sort_keys=False), directory=tmp_path, file="bee.yml")

    return load_changed


@pytest.fixture
def refusals(tmp_path: Path, load_with: Load) -> Refusals:
    """The problems of a text, or of the minimal config with fields changed."""

    def problems(text: str | None = None, **fields: Any) -> list[Problem]:
        with pytest.raises(ConfigInvalid) as refused:
            if text is not None:
                load(text, directory=tmp_path, file="bee.yml")
            else:
                load_with(**fields)
        return list(refused.value.problems)

    return problems
