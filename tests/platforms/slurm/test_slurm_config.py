"""The section of Slurm: options of `sbatch`, refused ones, and the batch script."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from nni_manager.config.experiment_file import load
from nni_manager.domain.errors import ConfigInvalid
from nni_manager.platforms.slurm.config import SlurmConfig, refusal_of
from nni_manager.platforms.slurm.script import arguments, experiment_of, is_of, name_of, script
from tests.platforms.keeper_world import job_spec

pytestmark = pytest.mark.unit

_NAME = "nni_exp_abcdefgh_trial_k3f9a-2"


def _section(**fields: Any) -> SlurmConfig:
    return SlurmConfig.model_validate({"platform": "slurm", **fields})


def _spec(**fields: Any) -> Any:
    given = {"command": "true", "caller_environment": {}, "code_directory": "/c", "attempt_directory": "/a", **fields}
    return job_spec(name=_NAME, experiment_id="abcdefgh", trial_id="k3f9a", attempt=2, **given)


def test_fields_become_options_of_sbatch() -> None:
    section = _section(
        partition="gpu",
        account="lab",
        qos="high",
        timeLimit="1-12",
        trialCpuNumber=4,
        trialMemorySize=8192,
        trialGpuNumber=2,
        gpuType="a100",
        nodeNumber=2,
        constraint="ib&a100",
        exclude="n[1-3]",
        options=["--exclusive", "--mail-type=FAIL"],
    )
    given = arguments(section, _spec(gpu_number=2, nonce="0123456789"), "/shared/x")
    assert given[:8] == [
        "--job-name=nni_exp_abcdefgh_trial_k3f9a-2-n01234567",
        "--chdir=/shared/x",
        "--output=/dev/null",
        "--error=/shared/x/slurm.err",
        "--open-mode=append",
        "--no-requeue",
        "--signal=B:USR1@60",
        "--export=ALL",
    ]
    assert "--gres=gpu:a100:2 --exclusive --mail-type=FAIL" in " ".join(given)
    assert {"--partition=gpu", "--account=lab", "--qos=high", "--time=1-12", "--cpus-per-task=4"} <= set(given)
    assert {"--mem=8192M", "--nodes=2", "--constraint=ib&a100", "--exclude=n[1-3]"} <= set(given)


@pytest.mark.parametrize(
    "option",
    [
        "--partition=x",
        "--part=x",
        "-p",
        "-px",
        "--no-requeue",
        "--array=1-2",
        "-J",
        "-HJname",
        "--export=NONE",
        "--gres=gpu:1",
        "--gpus-per-node=1",
    ],
)
def test_option_that_the_manager_sets_is_refused(option: str) -> None:
    assert refusal_of(option, has_gpus=True)


@pytest.mark.parametrize(
    "option", ["--exclusive", "--mem-per-cpu=1G", "--reservation=x", "-d", "--hold", "-H", "-HLmatlab", "-dJ"]
)
def test_other_option_is_passed_on(option: str) -> None:
    assert not refusal_of(option, has_gpus=True)


def test_resources_of_other_kinds_are_passed_on_without_gpus() -> None:
    assert not refusal_of("--gres=tmpfs:10G", has_gpus=False)


@pytest.mark.parametrize("limit", ["10", "10:30", "2:00:00", "1-12", "1-12:30", "1-12:30:00"])
def test_time_limit_has_the_notation_of_slurm(limit: str) -> None:
    assert _section(timeLimit=limit).time_limit == limit


@pytest.mark.parametrize("limit", ["2h", "", "1-", "a"])
def test_invalid_time_limit_is_refused(limit: str) -> None:
    with pytest.raises(ValueError, match="timeLimit"):
        _section(timeLimit=limit)


def test_gpu_type_without_gpus_is_refused() -> None:
    assert [field for field, _ in _section(gpuType="a100").faults({})] == ["gpuType"]


def test_local_folder_needs_a_folder() -> None:
    section = _section(localFolder="/mnt", login={"host": "login", "user": "ann"})
    assert [field for field, _ in section.faults({})] == ["folder"]


def test_name_has_the_nonce_and_belongs_to_its_attempt() -> None:
    name = name_of(_spec(nonce="AB-cd01234567"))
    assert name == f"{_NAME}-nabcd0123"
    assert is_of(name, _NAME) and is_of(_NAME, _NAME)
    assert not is_of(name, _NAME.removesuffix("-2")) and not is_of(f"{_NAME}0-nab", _NAME)
    assert experiment_of(name) == "abcdefgh" and experiment_of("bash") == ""


def test_script_ends_in_the_runner() -> None:
    text = script(_section(prologue="module load python"), "exec sh run.sh", "/shared")
    assert text == "#!/bin/bash\ntrap '' USR1\nmodule load python\nexec sh run.sh\n"


def test_notice_before_the_runner_does_not_end_the_job() -> None:
    """As with a time limit of a minute, whose notice comes at once."""
    text = script(_section(prologue="kill -USR1 $$"), "exec echo started", "/shared")
    done = subprocess.run(["bash"], input=text, capture_output=True, text=True, timeout=20, check=False)
    assert (done.returncode, done.stdout) == (0, "started\n"), done


@pytest.mark.parametrize("name", ["apptainer", "singularity"])
def test_container_runs_the_start_command(tmp_path: Path, name: str) -> None:
    """Also where the node's TMPDIR is a folder that the container does not have."""
    program = tmp_path / name
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"; shift 5; "$@"\n')
    program.chmod(0o755)
    section = _section(container="/images/it's.sif", trialGpuNumber=1)
    text = script(section, 'exec echo "in ${TMPDIR:-/tmp}"', "/shared")
    done = subprocess.run(
        ["/bin/bash"],
        input=text,
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", "TMPDIR": "/scratch/of/the/job"},
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    shown = done.stdout.splitlines()
    assert shown[:5] == ["exec", "--nv", "--bind", "/shared", "/images/it's.sif"], done
    assert shown[-1] == "in /tmp"


_FILE = """\
searchSpace: {x: {_type: uniform, _value: [0, 1]}}
trialCommand: "true"
trialConcurrency: 1
tuner: {name: Random}
trainingService:
  platform: slurm
  options:
    - --exclusive
    - --array=1-9
"""


def test_refused_option_is_named_by_field_and_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid) as refused:
        load(_FILE, directory=tmp_path)
    assert [(one.field, one.line) for one in refused.value.problems] == [("trainingService.options[1]", 9)]
