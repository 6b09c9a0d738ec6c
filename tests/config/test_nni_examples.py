"""NNI's example configs, each with its verdict: valid here, or refused for one reason, with line and field."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nni_manager.config import admission
from nni_manager.config.experiment_file import from_canonical, read_file
from nni_manager.domain.errors import ConfigInvalid, InvalidInput

pytestmark = pytest.mark.unit

EXAMPLES = Path(__file__).parent / "nni_examples"
NO_CONFIGS = {"fc-template.yml", "pai-job.yml"}

LOCAL = ("v1-advisor.yml", "v1-local.yml", "v2-custom-tuner.yml", "v2-local-inline.yml", "v2-local.yml")
#: Valid, and of a platform elsewhere, the first one that may have no adapter yet.
ELSEWHERE = {
    "seed-dlc.yml": "dlc",
    "v1-aml.yml": "aml",
    "v2-aml.yml": "aml",
    "v2-dlc-resource.yml": "dlc",
    "seed-kubeflow-azure.yml": "kubeflow",
    "seed-kubeflow-pytorch.yml": "kubeflow",
    "seed-kubeflow-tf.yml": "kubeflow",
    "seed-openpai.yml": "openpai",
    "v1-adl.yml": "adl",
    "v1-dlts.yml": "dlts",
    "v1-frameworkcontroller-template.yml": "frameworkcontroller",
    "v1-frameworkcontroller.yml": "frameworkcontroller",
    "v1-hybrid.yml": "remote",
    "v1-kubeflow-azure.yml": "kubeflow",
    "v1-pai-password-jobfile.yml": "openpai",
    "v1-pai.yml": "openpai",
    "v1-remote.yml": "remote",
    "v2-adl-proposed.yml": "adl",
    "v2-dlts-proposed.yml": "dlts",
    "v2-frameworkcontroller.yml": "frameworkcontroller",
    "v2-hybrid.yml": "remote",
    "v2-kubeflow-pytorch-azure.yml": "kubeflow",
    "v2-kubeflow-tf.yml": "kubeflow",
    "v2-openpai-jobconfig.yml": "openpai",
    "v2-openpai-jobfile.yml": "openpai",
    "v2-openpai.yml": "openpai",
    "v2-remote.yml": "remote",
    "v2-sharedstorage-azureblob.yml": "remote",
    "v2-sharedstorage-nfs.yml": "remote",
    "v2-sharedstorage-openpai.yml": "openpai",
}
VALID = (*LOCAL, *ELSEWHERE)
#: File → everything that is wrong: line, field, words.
REFUSED: dict[str, list[tuple[int, str, str]]] = {
    "invalid/advisor-and-tuner.yml": [(6, "advisor", "an advisor is both tuner and assessor")],
    "invalid/bad-memory.yml": [(14, "trainingService.trialMemorySize", "must be an amount of memory such as 8GB")],
    "invalid/both-pai-configs.yml": [(13, "trainingService.openpaiConfigFile", "openpaiConfig is set, too")],
    "invalid/gpu-index-duplicate.yml": [(7, "trainingService.gpuIndices", "names GPU 0 twice")],
    "invalid/gpu-without-useactive.yml": [(7, "trainingService.useActiveGpu", "must be true or false when")],
    "invalid/pai-v1-missing-resources.yml": [
        (9, "trial.cpuNum", "is required and not set"),
        (9, "trial.memoryMB", "is required and not set"),
    ],
    "invalid/placeholder.yml": [
        (16, "kubeflowConfig.nfs.server", "contains the placeholder {your_nfs_server_ip}"),
        (16, "kubeflowConfig.nfs.path", "contains the placeholder {your_nfs_server_export_path}"),
    ],
    "invalid/tf-with-master.yml": [(11, "trial.master", "is not valid with tf-operator")],
    "invalid/unknown-field.yml": [(4, "trialConcurency", "did you mean trialConcurrency?")],
}


@pytest.fixture(autouse=True)
def working_directory_may_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """`seed-dlc.yml` names a folder that exists, and can be made, on a PAI-DSW machine only."""
    monkeypatch.setattr("nni_manager.config.reading.source.Source.makeable_directory", lambda self, raw: self.path(raw))


def test_every_example_has_a_verdict() -> None:
    there = {str(path.relative_to(EXAMPLES)) for path in EXAMPLES.rglob("*.yml")} - NO_CONFIGS
    assert there == {*VALID, *REFUSED}


@pytest.mark.parametrize("name", VALID)
def test_valid_example_keeps_its_canonical_form(name: str) -> None:
    spec = read_file(EXAMPLES / name).spec
    assert from_canonical(spec.canonical) == spec
    text = str(spec.canonical).replace("not-a-real-id", "an-id")
    assert "not-a-real" not in text, "a secret is not part of the config"


@pytest.mark.parametrize("name", VALID)
def test_valid_example_is_admitted(name: str) -> None:
    admission.check(read_file(EXAMPLES / name).spec)


@pytest.mark.parametrize("name", ["seed-dlc.yml", "v2-kubeflow-tf.yml", "v2-dlts-proposed.yml"])
def test_platform_without_shared_storage_gives_advice(name: str) -> None:
    storage = {
        "storageType": "NFS",
        "localMountPoint": "/mnt",
        "remoteMountPoint": "/mnt",
        "localMounted": "usermount",
        "nfsServer": "files",
        "exportedDirectory": "/data",
    }
    spec = replace(read_file(EXAMPLES / name).spec, shared_storage=storage)
    words = r"^sharedStorage: trials of \w+ cannot work on shared storage; remove this section, and (set|let) "
    with pytest.raises(InvalidInput, match=words):
        admission.check(spec)


@pytest.mark.parametrize("name", REFUSED)
def test_refused_example_names_one_problem_and_its_line(name: str) -> None:
    with pytest.raises(ConfigInvalid) as refused:
        read_file(EXAMPLES / name)
    problems = refused.value.problems
    assert [(one.line, one.field) for one in problems] == [(line, field) for line, field, _ in REFUSED[name]]
    for problem, (_, _, words) in zip(problems, REFUSED[name], strict=True):
        assert words in problem.message
        assert problem.file == str(EXAMPLES / name)


def test_sections_of_one_experiment_have_names() -> None:
    spec = read_file(EXAMPLES / "v1-hybrid.yml").spec
    assert [platform.service for platform in spec.platforms] == ["local", "remote", "openpai"]
    assert [platform.settings["trialCommand"] for platform in spec.platforms] == ["python3 trial.py"] * 3
    assert spec.platforms[2].settings["host"] == "https://pai.example.test", "a token never travels in the clear"
