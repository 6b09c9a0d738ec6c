"""The configs of the pages that NNI's users start from: as printed each placeholder is named, filled they are valid."""

from __future__ import annotations

from pathlib import Path

import pytest

from nni_manager.config.experiment_file import load
from nni_manager.domain.errors import ConfigInvalid, Problem

pytestmark = pytest.mark.unit

OPENPAI = """\
trialGpuNumber: 0
trialConcurrency: 1
...
trainingService:
  platform: openpai
  host: http://123.123.123.123
  username: ${your user name}
  token: ${your token}
  dockerImage: msranni/nni
  trialCpuNumber: 1
  trialMemorySize: 8GB
  storageConfigName: confignfs-data
  localStorageMountPoint: local
  containerStorageMountPoint: /mnt/confignfs-data
"""
ELIDED = "searchSpaceFile: search_space.json\ntrialCommand: python3 mnist.py\ntuner: {name: TPE}\n"
DLC = """\
experimentWorkingDirectory: workspace/{your_working_dir}
searchSpaceFile: search_space.json
trialCommand: python mnist.py --data_dir /root/data/{your_data_dir}
trialConcurrency: 1
maxTrialNumber: 10
tuner:
  name: TPE
  classArgs:
    optimize_mode: maximize
trainingService:
  platform: dlc
  type: Worker
  image: registry-vpc.cn-beijing.aliyuncs.com/pai-dlc/pytorch-training:1.6.0-gpu-py37-cu101-ubuntu18.04
  jobType: PyTorchJob
  podCount: 1
  ecsSpec: ecs.c6.large
  region: cn-hangzhou
  accessKeyId: ${your_ak_id}
  accessKeySecret: ${your_ak_key}
  nasDataSourceId: ${your_nas_data_source_id}
  ossDataSourceId: ${your_oss_data_source_id}
  localStorageMountPoint: /home/admin/workspace/
  containerStorageMountPoint: /root/data/
"""
_ROLE = "{replicas: 1, command: python3 dist_mnist.py, gpuNum: 1, cpuNum: 1, memoryMB: 2048, image: msranni/nni:latest}"
KUBEFLOW = """\
authorName: default
experimentName: example_mnist
trialConcurrency: 2
maxExecDuration: 1h
maxTrialNum: 20
trainingServicePlatform: kubeflow
searchSpacePath: search_space.json
useAnnotation: false
tuner: {builtinTunerName: TPE, classArgs: {optimize_mode: maximize}}
trial:
  codeDir: .
"""
TF_NFS = f"""\
{KUBEFLOW}  worker: {_ROLE}
  ps: {_ROLE}
kubeflowConfig:
  operator: tf-operator
  apiVersion: v1alpha2
  storage: nfs
  nfs:
    server: {{your_nfs_server_ip}}
    path: {{your_nfs_server_export_path}}
"""
PYTORCH = f"""\
{KUBEFLOW}  master: {_ROLE}
  worker: {_ROLE}
kubeflowConfig:
  operator: pytorch-operator
  apiVersion: v1alpha2
  nfs:
    server: {{your_nfs_server_ip}}
    path: {{your_nfs_server_export_path}}
"""
TF_AZURE = f"""\
{KUBEFLOW}  worker: {_ROLE}
kubeflowConfig:
  operator: tf-operator
  apiVersion: v1alpha2
  storage: azureStorage
  keyVault:
    vaultName: {{your_vault_name}}
    name: {{your_secert_name}}
  azureStorage:
    accountName: {{your_storage_account_name}}
    azureShare: {{your_azure_share_name}}
"""
#: Text → (placeholder, line, field) of all of them.
DOCUMENTS = {
    "openpai": (
        OPENPAI,
        [
            ("'...' stands for", 3, "..."),
            ("${your user name}", 7, "trainingService.username"),
            ("${your token}", 8, "trainingService.token"),
        ],
    ),
    "dlc": (
        DLC,
        [
            ("{your_working_dir}", 1, "experimentWorkingDirectory"),
            ("${your_ak_id}", 18, "trainingService.accessKeyId"),
            ("${your_ak_key}", 19, "trainingService.accessKeySecret"),
            ("${your_nas_data_source_id}", 20, "trainingService.nasDataSourceId"),
            ("${your_oss_data_source_id}", 21, "trainingService.ossDataSourceId"),
        ],
    ),
    "kubeflow tf-operator": (
        TF_NFS,
        [
            ("{your_nfs_server_ip}", 19, "kubeflowConfig.nfs.server"),
            ("{your_nfs_server_export_path}", 20, "kubeflowConfig.nfs.path"),
        ],
    ),
    "kubeflow pytorch-operator": (
        PYTORCH,
        [
            ("{your_nfs_server_ip}", 18, "kubeflowConfig.nfs.server"),
            ("{your_nfs_server_export_path}", 19, "kubeflowConfig.nfs.path"),
        ],
    ),
    "kubeflow azureStorage": (
        TF_AZURE,
        [
            ("{your_vault_name}", 18, "kubeflowConfig.keyVault.vaultName"),
            ("{your_secert_name}", 19, "kubeflowConfig.keyVault.name"),
            ("{your_storage_account_name}", 21, "kubeflowConfig.azureStorage.accountName"),
            ("{your_azure_share_name}", 22, "kubeflowConfig.azureStorage.azureShare"),
        ],
    ),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "search_space.json").write_text('{"lr": {"_type": "uniform", "_value": [0, 1]}}')
    (tmp_path / "local").mkdir()
    return tmp_path


@pytest.mark.parametrize("name", DOCUMENTS)
def test_printed_example_names_each_placeholder(name: str, folder: Path) -> None:
    text, expected = DOCUMENTS[name]
    with pytest.raises(ConfigInvalid) as refused:
        load(text, directory=folder)
    named = [one for one in refused.value.problems if "placeholder" in one.message or "stands for" in one.message]
    assert [(one.line, one.field) for one in named] == [(line, field) for _, line, field in expected]
    assert all(words in one.message for one, (words, _, _) in zip(named, expected, strict=True))
    assert _others(refused.value.problems, named) == _elided(name)


def _others(problems: tuple[Problem, ...], named: list[Problem]) -> set[str]:
    return {one.field for one in problems if one not in named}


def _elided(name: str) -> set[str]:
    """What the OpenPAI page leaves out is missing, and nothing else is wrong anywhere."""
    return {"searchSpace", "trialCommand", "tuner"} if name == "openpai" else set()


@pytest.mark.parametrize("name", DOCUMENTS)
def test_filled_example_is_valid(name: str, folder: Path) -> None:
    text, expected = DOCUMENTS[name]
    filled = text.replace("...\n", ELIDED)
    for placeholder, _, _ in expected:
        filled = filled.replace(placeholder, "filled-in")
    spec = load(filled, directory=folder)
    assert spec.platforms[0].name in name
    if name == "dlc":  # in a command braces are the user's
        assert spec.trial_command.endswith("{your_data_dir}")
