"""`nnictl config check` of many files, as `create` would judge them, and `nnictl config convert`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from nni_manager.cli.main import nnictl as group

pytestmark = pytest.mark.unit

UNWRITTEN = "not set, so the highest result counts as best (direction not set); set maximize or minimize"
EXAMPLES = Path(__file__).parents[1] / "config" / "nni_examples"
GOOD = EXAMPLES / "v2-local-inline.yml"
BAD = EXAMPLES / "invalid" / "unknown-field.yml"
#: A valid section that the adapter refuses.
SEVERAL_LINES = {"platform": "scripted", "launch": "external", "trialCommand": "one\ntwo"}


def nnictl(*words: object) -> Result:
    return CliRunner().invoke(group, [*map(str, words)])


def _with_section(folder: Path, section: object) -> Path:
    config = yaml.safe_load(GOOD.read_text()) | {"trial_code_directory": ".", "training_service": section}
    (folder / "bee.yml").write_text(yaml.safe_dump(config))
    (folder / "trial.py").touch()
    return folder / "bee.yml"


def test_many_files_get_a_verdict_each(tmp_path: Path) -> None:
    refused = _with_section(tmp_path, SEVERAL_LINES)
    result = nnictl("config", "check", GOOD, BAD, refused)
    assert result.exit_code == 2
    assert result.stdout == f"{GOOD}: valid; at most 2 trials of Random on local\n"
    unwritten, bad, no_file, other = result.stderr.splitlines()
    assert UNWRITTEN in unwritten and "runs trial.py, which is not in the code directory" in no_file
    assert bad == f"{BAD}:4: trialConcurency: unknown field; did you mean trialConcurrency?"
    assert other.startswith(f"{refused}: trialCommand: has several lines")


def test_verdicts_for_programs() -> None:
    result = nnictl("config", "check", "--json", GOOD, BAD)
    good, bad = json.loads(result.stdout)
    assert result.exit_code == 2 and result.stderr == ""
    (warning,) = good.pop("warnings")
    assert good == {"file": str(GOOD), "valid": True, "problems": []}
    assert (warning["code"], warning["message"]) == ("NO_DIRECTION", UNWRITTEN)
    assert (bad["valid"], bad["problems"][0]["line"], bad["problems"][0]["field"]) == (False, 4, "trialConcurency")


def test_schema_is_printed_as_json() -> None:
    schema = json.loads(nnictl("config", "schema").stdout)
    assert {"trialConcurrency", "trainingService"} == set(schema["required"])


@pytest.mark.parametrize(
    ("tuner", "better"),
    [
        ({"name": "TPE"}, "lowest"),
        ({"name": "Random"}, "highest"),
        ({"name": "TPE", "classArgs": {"optimize_mode": "maximize"}}, ""),
    ],
)
def test_a_direction_that_is_not_written_is_named(tmp_path: Path, tuner: dict[str, object], better: str) -> None:
    config = yaml.safe_load(GOOD.read_text()) | {"trial_code_directory": ".", "tuner": tuner}
    (tmp_path / "bee.yml").write_text(yaml.safe_dump(config))
    (tmp_path / "trial.py").touch()
    result = nnictl("config", "check", tmp_path / "bee.yml")
    assert result.exit_code == 0
    assert (f"so the {better} result counts as best" in result.stderr) if better else result.stderr == ""


@pytest.mark.parametrize("section", [SEVERAL_LINES, [{"platform": "local"}, SEVERAL_LINES]])
def test_the_platform_is_asked_as_create_asks_it(tmp_path: Path, section: object) -> None:
    result = nnictl("config", "check", _with_section(tmp_path, section))
    assert result.exit_code == 2 and "trialCommand: has several lines" in result.stderr


def test_an_older_name_is_a_warning(tmp_path: Path) -> None:
    text = (EXAMPLES / "v2-openpai.yml").read_text().replace("storageConfigName", "paiStorageConfigName")
    path = tmp_path / "bee.yml"
    path.write_text(text.replace(": storage", f": {EXAMPLES}/storage").replace(": code", f": {EXAMPLES}/code"))
    (tmp_path / "search_space.json").write_text("{}")
    result = nnictl("config", "check", path)
    words = "trainingService.paiStorageConfigName: is an older name; write storageConfigName"
    assert (result.exit_code, result.stderr) == (0, f"warning: {path}:21: {words}\n")


def test_conversion_keeps_values_and_names_losses() -> None:
    result = nnictl("config", "convert", EXAMPLES / "v1-remote.yml")
    assert result.exit_code == 0
    converted = yaml.safe_load(result.stdout)
    assert converted["trainingService"]["machineList"][1]["sshPassphrase"] == "not-a-real-passphrase"
    assert converted["trainingService"]["machineList"][1]["sshKeyFile"] == "id_example"
    lines = result.stderr.splitlines()
    assert [line.split(": ")[2] for line in lines] == ["versionCheck", "logCollection", "authorName"]
    words = "is left out: versionCheck, which NNI 3.0 does not know; --all keeps it for nni_manager, which uses it"
    assert lines[0].endswith(words) and "versionCheck" not in converted
    assert nnictl("config", "convert", GOOD).exit_code == 2


def test_convert_all_prints_our_own_fields() -> None:
    result = nnictl("config", "convert", "--all", EXAMPLES / "v1-remote.yml")
    assert yaml.safe_load(result.stdout)["versionCheck"] is False
    assert result.stderr.splitlines()[0].endswith(
        "versionCheck: is printed as versionCheck, which NNI 3.0 does not know"
    )


def test_conversion_needs_no_named_files(tmp_path: Path) -> None:
    text = (EXAMPLES / "v1-remote.yml").read_text()
    algorithm = {"codeDir": "mine", "classFileName": "bee.py", "className": "Bee"}
    values = yaml.safe_load(text) | {"tuner": algorithm, "logDir": "not/there", "multiPhase": False}
    (tmp_path / "old.yml").write_text(yaml.safe_dump(values))
    result = nnictl("config", "convert", tmp_path / "old.yml")
    assert result.exit_code == 0, result.stderr
    converted = yaml.safe_load(result.stdout)
    assert converted["tuner"] == {"className": "bee.Bee", "codeDirectory": "mine"}
    assert "multiPhase" not in converted and "multiPhase: is left out: it changes nothing" in result.stderr


def test_unimportable_class_is_refused_with_line(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "helper.py").write_text("\n\nvalue = {}['missing']\n")
    (tmp_path / "mine" / "bee.py").write_text("import helper\n")
    algorithm = {"className": "bee.Bee", "codeDirectory": "mine"}
    config = yaml.safe_load(GOOD.read_text()) | {"trial_code_directory": ".", "tuner": algorithm}
    (tmp_path / "bee.yml").write_text(yaml.safe_dump(config))
    (tmp_path / "trial.py").touch()
    result = nnictl("config", "check", tmp_path / "bee.yml")
    assert result.exit_code == 2
    assert f"KeyError: 'missing' ({tmp_path}/mine/helper.py, line 3)" in result.stderr
