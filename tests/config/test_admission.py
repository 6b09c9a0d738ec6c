"""What `create` refuses without asking a platform is refused by every command that judges a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from nni_manager.app.doctor import config_file
from nni_manager.app.doctor.finding import CheckOutcome
from nni_manager.cli.main import nnictl
from nni_manager.config import admission, experiment_file
from nni_manager.domain.errors import InvalidInput
from nni_manager.scheduler.experiments import preflight
from nni_manager.scheduler.experiments.submission import Submission

pytestmark = pytest.mark.unit

TOO_LARGE = "most of it in 'data', but at most 300.0 MB can be sent to trials"
REST = "searchSpace: {x: {_type: choice, _value: [1]}}\ntrialCommand: 'true'\ntrialConcurrency: 1\n"
TUNER = "tuner: {name: TPE, classArgs: {optimize_mode: maximize}}\n"
REMOTE = "trainingService: {platform: remote, machineList: [{host: there, user: me, password: '1'}]}\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """An experiment file next to 600 MB of sparse code."""
    (tmp_path / "data").mkdir()
    with (tmp_path / "data" / "large").open("wb") as large:
        large.truncate(600 * 1024**2)
    path = tmp_path / "experiment.yml"
    path.write_text(REST + TUNER + REMOTE)
    return path


def test_code_that_cannot_be_packed_is_refused(file: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=TOO_LARGE):
        admission.check(experiment_file.read_file(file, tmp_path, {}).spec)
    checked = CliRunner().invoke(nnictl, ["config", "check", str(file)])
    assert checked.exit_code == 2 and TOO_LARGE in checked.stderr
    found = [one for one in config_file.look(file, tmp_path) if one.verdict is CheckOutcome.FAIL]
    assert len(found) == 1 and TOO_LARGE in found[0].sentence


async def test_plan_refuses_code_that_cannot_be_packed(file: Path, tmp_path: Path) -> None:
    spec = experiment_file.read_file(file, tmp_path, {}).spec
    nothing_is_asked: Any = None
    with pytest.raises(InvalidInput, match=TOO_LARGE):
        await preflight.plan_jobs(Submission(spec=spec), nothing_is_asked)


def test_ignored_files_are_not_measured(file: Path, tmp_path: Path) -> None:
    (tmp_path / ".nniignore").write_text("data\n")
    admission.check(experiment_file.read_file(file, tmp_path, {}).spec)


def test_local_code_may_have_any_size(file: Path, tmp_path: Path) -> None:
    file.write_text(REST + TUNER + "trainingService: {platform: local}\n")
    admission.check(experiment_file.read_file(file, tmp_path, {}).spec)


def test_doctor_imports_user_class(file: Path, tmp_path: Path) -> None:
    file.write_text(REST + "tuner: {className: nowhere.Mine}\ntrainingService: {platform: local}\n")
    (found,) = [one for one in config_file.look(file, tmp_path) if one.verdict is CheckOutcome.FAIL]
    assert "nowhere" in found.sentence


SMALL = "searchSpace: {a: {_type: choice, _value: [1, 2, 4, 8]}, b: {_type: quniform, _value: [0, 0.1, 0.1]}}\n"
ENDLESS = "searchSpace: {a: {_type: choice, _value: [1, 2]}, b: {_type: uniform, _value: [0, 1]}}\n"
ONE_POINT = "searchSpace: {a: {_type: choice, _value: [1]}}\n"
COMMAND = "trialCommand: 'true'\ntrialConcurrency: 1\ntrainingService: {platform: local}\n"


@pytest.mark.parametrize(
    ("space", "tuner", "most", "is_told"),
    [
        (SMALL, "TPE", 9, True),
        (SMALL, "TPE", 8, False),
        (SMALL, "GridSearch", 9, True),
        (SMALL, "Hyperband", 9, False),
        (ENDLESS, "Random", 10**6, False),
        (ONE_POINT, "Random", 5, False),
    ],
)
def test_limit_above_the_number_of_points_warns(
    tmp_path: Path, space: str, tuner: str, most: int, is_told: bool
) -> None:
    arguments = "{optimize_mode: maximize, R: 9}" if tuner == "Hyperband" else "{optimize_mode: maximize}"
    text = f"{space}{COMMAND}maxTrialNumber: {most}\ntuner: {{name: {tuner}, classArgs: {arguments}}}\n"
    told = admission.warnings(experiment_file.load(text, directory=tmp_path), file="exp.yml")
    assert [one.code for one in told] == (["FEW_POINTS"] if is_told else [])
    assert all("maxTrialNumber: is 9" in str(one) and "8 different points" in str(one) for one in told)
