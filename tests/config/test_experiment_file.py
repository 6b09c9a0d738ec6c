"""Whole files, as users write them: what they become, and every way they are refused."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nni_manager.config.experiment_file import CHANGEABLE, change, from_canonical, load, read_file
from nni_manager.domain.algorithm import AlgorithmSpec
from nni_manager.domain.errors import ConfigInvalid, InvalidInput

pytestmark = pytest.mark.unit

EXAMPLES = Path(__file__).parent / "examples"
VALID = sorted((EXAMPLES / "valid").iterdir())
INVALID = sorted((EXAMPLES / "invalid").iterdir())


def test_a_gpu_experiment() -> None:
    spec = read_file(EXAMPLES / "valid/local-gpu.yml").spec
    assert (spec.name, spec.trial_command) == ("bumblebee", "python3 fit.py")
    assert (spec.trial_concurrency, spec.max_trial_number, spec.trial_gpu_number) == (3, 40, 1)
    assert (spec.max_experiment_duration_s, spec.max_trial_duration_s) == (9000, 900)
    assert spec.search_space["layers"] == {"_type": "randint", "_value": [1, 6]}
    assert spec.trial_code_directory == str(EXAMPLES / "code")
    assert spec.working_directory == str(Path.home().resolve() / "nni-experiments")
    assert spec.tuner_gpu_indices == (1,)
    assert spec.tuner == AlgorithmSpec(name="TPE", class_args={"optimize_mode": "maximize"})
    assert spec.assessor is not None and spec.assessor.class_args["start_step"] == 3
    assert (spec.debug, spec.log_level, spec.version_check) == (False, "info", True)
    assert (spec.max_trial_retries, spec.grace_period_s, spec.metric_grace_s) == (0, 5.0, 10.0)


def test_the_canonical_form_is_what_nni_clients_expect() -> None:
    code = str(EXAMPLES / "code")
    assert read_file(EXAMPLES / "valid/local-gpu.yml").spec.canonical == {
        "experimentName": "bumblebee",
        "experimentType": "hpo",
        "searchSpace": {
            "rate": {"_type": "loguniform", "_value": [0.0005, 0.2]},
            "layers": {"_type": "randint", "_value": [1, 6]},
            "activation": {"_type": "choice", "_value": ["relu", "tanh"]},
        },
        "trialCommand": "python3 fit.py",
        "trialCodeDirectory": code,
        "trialConcurrency": 3,
        "trialGpuNumber": 1,
        "maxExperimentDuration": "2.5h",
        "maxTrialNumber": 40,
        "maxTrialDuration": "15m",
        "useAnnotation": False,
        "debug": False,
        "logLevel": "info",
        "experimentWorkingDirectory": str(Path.home().resolve() / "nni-experiments"),
        "tunerGpuIndices": [1],
        "tuner": {"name": "TPE", "classArgs": {"optimize_mode": "maximize"}},
        "assessor": {"name": "Medianstop", "classArgs": {"optimize_mode": "maximize", "start_step": 3}},
        "trainingService": {
            "platform": "local",
            "trialCommand": "python3 fit.py",
            "trialCodeDirectory": code,
            "trialGpuNumber": 1,
            "debug": False,
            "useActiveGpu": False,
            "maxTrialNumberPerGpu": 2,
            "gpuIndices": [0, 1],
            "reuseMode": False,
        },
    }


def test_snake_case_and_zero_gpus() -> None:
    spec = read_file(EXAMPLES / "valid/local-inline.yml").spec
    assert (spec.trial_gpu_number, spec.platforms[0].settings["trialGpuNumber"]) == (0, 0)
    assert spec.tuner.name == "Random"


def test_users_tuner_and_yaml_1_1_words_in_the_search_space() -> None:
    spec = read_file(EXAMPLES / "valid/custom-tuner.yml").spec
    assert spec.tuner == AlgorithmSpec(
        class_name="bees.BeeTuner", code_directory=str(EXAMPLES / "code"), class_args={"hives": 7, "queen": None}
    )
    assert spec.search_space["switch"] == {"_type": "choice", "_value": [True, False]}


def test_our_own_fields_and_an_advisor() -> None:
    spec = read_file(EXAMPLES / "valid/own-fields.yml").spec
    assert (spec.max_trial_retries, spec.grace_period_s, spec.metric_grace_s) == (2, 0.5, 60.0)
    assert (spec.max_same_failures, spec.max_failed_trials) == (4, 6)
    assert (spec.version_check, spec.log_level) == (False, "trace")
    assert spec.working_directory == str(EXAMPLES / "valid/made-later")
    assert spec.tuner.name == "GridSearch"
    assert "advisor" not in spec.canonical
    assert spec.trial_gpu_number == 2
    assert spec.platforms[0].settings["gpuIndices"] == [0, 3]
    assert "nniManagerIp" not in spec.platforms[0].settings


@pytest.mark.parametrize(
    ("given", "read"),
    [("python3.9", "python3.9"), ("/opt/x/bin/python", "/opt/x/bin/python"), ("env/bin/python", "{}/env/bin/python")],
)
def test_the_python_of_a_users_tuner_keeps_its_links(tmp_path: Path, given: str, read: str) -> None:
    """A virtual environment's is a link to another Python, and a name is for the caller's PATH to find."""
    (tmp_path / "env").symlink_to("elsewhere")
    text = (EXAMPLES / "valid/custom-tuner.yml").read_text().replace("..", str(EXAMPLES))
    spec = load(f"{text}\ntunerPython: {given}\n", directory=tmp_path)
    assert spec.tuner_python == spec.canonical["tunerPython"] == read.format(tmp_path)
    assert from_canonical(spec.canonical) == spec


@pytest.mark.parametrize("file", VALID, ids=lambda file: file.name)
def test_the_canonical_form_rebuilds_the_experiment(file: Path) -> None:
    spec = read_file(file).spec
    assert from_canonical(spec.canonical) == spec


@pytest.mark.parametrize("file", INVALID, ids=lambda file: file.name)
def test_every_problem_is_named_with_file_line_and_field(file: Path) -> None:
    expected = re.findall(r"^# expect (\d+) (\S+): (.*)$", file.read_text(), re.MULTILINE)
    with pytest.raises(ConfigInvalid) as refused:
        read_file(file)
    found = {(str(problem.line), problem.field): problem for problem in refused.value.problems}
    assert sorted(found) == sorted((line, field) for line, field, _ in expected)
    for line, field, words in expected:
        assert words in found[line, field].message
        assert found[line, field].file == str(file)


@pytest.mark.parametrize("text", ["", "# nothing", "null", "- a", "just text", "5"])
def test_a_config_is_a_mapping(text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="a config must be a mapping"):
        load(text, directory=tmp_path)


def test_broken_yaml_names_its_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid) as refused:
        load("trialConcurrency: 1\ntuner: {name: TPE\n", directory=tmp_path, file="bee.yml")
    [problem] = refused.value.problems
    assert (problem.file, problem.line) == ("bee.yml", 2)
    assert problem.message.startswith("not valid YAML")


def test_invalid_utf_8_is_refused_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "bee.yml"
    file.write_bytes("trialConcurrency: 1\nexperimentName: Bién\n".encode("latin-1"))
    with pytest.raises(ConfigInvalid, match=r"bee\.yml:2: not UTF-8 text"):
        read_file(file)


def test_byte_order_mark_is_not_part_of_first_key(tmp_path: Path) -> None:
    file = tmp_path / "bee.yml"
    text = (EXAMPLES / "valid/local-inline.yml").read_text().replace("../code", ".")
    file.write_bytes(b"\xef\xbb\xbf" + text.split("\n", 1)[1].encode())
    assert read_file(file).spec.trial_concurrency == 1


@pytest.mark.parametrize(("name", "words"), [("missing.yml", "No such file"), ("", "not a regular file")])
def test_a_file_that_cannot_be_read(name: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match=words):
        read_file(tmp_path / name)


def test_a_huge_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "bee.yml"
    file.write_bytes(b"#" * (2**20 + 1))
    with pytest.raises(ConfigInvalid, match="larger than 1 MiB"):
        read_file(file)


def test_a_huge_text_is_refused_as_a_file_is(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="larger than 1 MiB"):
        load("#" * (2**20 - 1) + "é", directory=tmp_path)


def test_missing_code_directory_keeps_stored_experiment_valid(tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    text = (EXAMPLES / "valid/local-inline.yml").read_text().replace("../code", "code")
    spec = load(text, directory=tmp_path)
    code.rmdir()
    assert from_canonical(spec.canonical) == spec
    assert change(spec, {"trialConcurrency": 4}).trial_code_directory == str(code)
    with pytest.raises(ConfigInvalid, match="cannot find folder"):
        load(text, directory=tmp_path)


def test_foreign_stored_mapping_is_refused() -> None:
    with pytest.raises(ConfigInvalid) as refused:
        from_canonical({"trialConcurrency": "2", "tuner": [], "queen": 1})
    assert {problem.field for problem in refused.value.problems} == {
        "trialConcurrency",
        "tuner",
        "queen",
        "searchSpace",
        "trialCommand",
        "trainingService",
    }


CHANGES = [
    ({"trialConcurrency": 9}, "trial_concurrency", 9),
    ({"maxTrialNumber": 50}, "max_trial_number", 50),
    ({"maxTrialNumber": None}, "max_trial_number", None),
    ({"maxExperimentDuration": "30m"}, "max_experiment_duration_s", 1800),
    ({"maxTrialDuration": 61}, "max_trial_duration_s", 61),
    (
        {"searchSpace": {"y": {"_type": "randint", "_value": [0, 9]}}},
        "search_space",
        {"y": {"_type": "randint", "_value": [0, 9]}},
    ),
    ({"experimentName": "hornet"}, "name", "hornet"),
]


@pytest.mark.parametrize(("fields", "attribute", "value"), CHANGES)
def test_a_live_change(fields: dict[str, object], attribute: str, value: object) -> None:
    before = read_file(EXAMPLES / "valid/local-gpu.yml").spec
    after = change(before, fields)
    assert getattr(after, attribute) == value
    assert from_canonical(after.canonical) == after
    same = {name for name in before.__slots__ if getattr(before, name) == getattr(after, name)}
    assert set(before.__slots__) - same == {attribute, "canonical"}


@pytest.mark.parametrize(
    "fields",
    [
        {"trialConcurrency": 0},
        {"trialConcurrency": 100_001},
        {"trialConcurrency": None},
        {"trialConcurrency": "3"},
        {"maxTrialNumber": True},
        {"maxTrialNumber": 10**9},
        {"maxTrialDuration": "soon"},
        {"maxExperimentDuration": 0},
        {"searchSpace": None},
        {"searchSpace": [1]},
        {"searchSpace": {"x": float("nan")}},
        {"experimentName": " "},
    ],
)
def test_a_live_change_obeys_the_rules_of_the_file(fields: dict[str, object]) -> None:
    spec = read_file(EXAMPLES / "valid/local-gpu.yml").spec
    with pytest.raises(ConfigInvalid) as refused:
        change(spec, fields)
    assert [problem.field for problem in refused.value.problems] == list(fields)


def test_stored_value_above_the_bound_opens_and_changes() -> None:
    large = {"trialConcurrency": 30_000_000, "maxTrialNumber": 10**12}
    spec = from_canonical({**read_file(EXAMPLES / "valid/local-gpu.yml").spec.canonical, **large})
    assert (spec.trial_concurrency, spec.max_trial_number) == (30_000_000, 10**12)
    assert change(spec, {"trialConcurrency": 4}).trial_concurrency == 4
    assert change(spec, {"experimentName": "hornet"}).trial_concurrency == 30_000_000


@pytest.mark.parametrize("field", ["trialCommand", "tuner", "queen"])
def test_other_fields_cannot_change(field: str) -> None:
    spec = read_file(EXAMPLES / "valid/local-gpu.yml").spec
    with pytest.raises(InvalidInput, match=f"{field} cannot be changed .* {CHANGEABLE[0]}"):
        change(spec, {field: "x"})


DURATIONS = st.one_of(
    st.integers(1, 10**6), st.builds("{}{}".format, st.integers(1, 999), st.sampled_from("smhdSMHD")), st.none()
)


@given(
    name=st.none() | st.text(st.characters(categories=("L", "N")), min_size=1),
    duration=DURATIONS,
    trials=st.none() | st.integers(1, 10**6),
    gpus=st.none() | st.integers(0, 8),
    concurrency=st.integers(1, 999),
)
def test_any_valid_config_survives_the_store(
    name: str | None, duration: object, trials: int | None, gpus: int | None, concurrency: int
) -> None:
    base = read_file(EXAMPLES / "valid/local-inline.yml").spec.canonical
    local = {"platform": "local", "useActiveGpu": True, "trialGpuNumber": gpus}
    fields = {"experimentName": name, "maxExperimentDuration": duration, "maxTrialNumber": trials}
    spec = from_canonical(
        {**base, **fields, "trialGpuNumber": gpus, "trialConcurrency": concurrency, "trainingService": local}
    )
    assert from_canonical(spec.canonical) == spec
    assert spec.trial_gpu_number == gpus
    assert None not in spec.canonical.values()


def test_loader_import_skips_yaml_and_platforms() -> None:
    program = "import sys, nni_manager.config.experiment_file; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert "nni_manager.config.dialects.dialect_v2" in modules
    assert not {"yaml", "nni_manager.platforms.local"} & set(modules)
