"""The fields at the top of an experiment file, each stated once: name, type, format, default and sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import ConfigDict, Field

from nni_manager.config.sections.model_fields import fields_of, marks_of
from nni_manager.platform_kit.section_model import Part


def _field(sentence: str, *, default: Any = None, marks: Mapping[str, Any] | None = None, **rules: Any) -> Any:
    """A field with its description. `rules`: pydantic's. `marks`, in addition to those of `platform_kit.section_model`:

    * ``shown``: the default in the documentation, if it is not ``none``
    * ``advice``: the end of the error message for a file without the field
    * ``ours``: NNI has no such field
    * ``firstFormat``: the field's name in NNI's first format
    * ``changeable``: `change` accepts the field
    * ``apart``: another module reads this section
    """
    return Field(default=default, description=sentence, json_schema_extra=dict(marks or {}) or None, **rules)


def _format(format: str, sentence: str, **marks: Any) -> Any:
    return _field(sentence, marks={"format": format, **marks})


def _ours(sentence: str, *, marks: Mapping[str, Any] | None = None, **rules: Any) -> Any:
    """A field that NNI does not have, in both formats of files."""
    return _field(f"{sentence} Not in NNI.", marks={"ours": True, **(marks or {})}, **rules)


def _section(sentence: str, **marks: Any) -> Any:
    return _field(sentence, marks={"apart": True, **marks})


LogLevel = Literal["fatal", "error", "warning", "info", "debug", "trace"]


class Experiment(Part):
    """The top level of an experiment file, in the order of the canonical form."""

    model_config = ConfigDict(defer_build=True)

    experiment_name: Any = _format(
        "title",
        "Name of the experiment in lists and on pages.",
        placeholders="your",
        firstFormat="experimentName",
        changeable=True,
    )
    experiment_type: Literal["hpo", "nas"] = _field(
        "Kind of experiment. Only `hpo` is supported; architecture search (`nas`) is refused.",
        default="hpo",
        marks={"shown": "`hpo`"},
    )
    search_space_file: Any = _section(
        "JSON or YAML file with the search space. It replaces `searchSpace` if both are set.",
        firstFormat="searchSpacePath",
    )
    search_space: Any = _section(
        "Search space: a mapping of names to `{_type, _value}`; `{}` is an empty one.", changeable=True
    )
    trial_command: Any = _format(
        "nonblank",
        "Shell command of a trial. Optional if every platform's section sets one.",
        shown="required",
        advice="set the command of a trial, for example python3 trial.py",
        placeholders="kept",
    )
    trial_code_directory: Any = _format("directory", "Folder with the trial's code.", shown="`.`")
    trial_concurrency: int | None = _field(
        "Maximum number of trials that run at the same time, from 1 to 100000.",
        ge=1,
        le=100_000,
        marks={
            "shown": "required",
            "advice": "set the number of trials that run at the same time, for example 1",
            "firstFormat": "trialConcurrency",
            "changeable": True,
        },
    )
    trial_gpu_number: int | None = _field(
        "Number of GPUs of a trial. Not set: all GPUs are visible, and none is reserved. 0: no GPU is visible.", ge=0
    )
    trial_gpu_memory: Any = _ours(
        "GPU memory that a trial needs on each of its GPUs, such as `8GB`. Trials share a GPU while its memory"
        " suffices.",
        marks={"format": "memory", "firstFormat": "trialGpuMemory"},
    )
    trial_python_version: Any = _ours(
        'Python version that `python3` must have where trials run, such as `"3.11"`. `create` checks the machines.',
        marks={"format": "python-version", "firstFormat": "trialPythonVersion"},
    )
    max_experiment_duration: Any = _format(
        "duration",
        "Maximum time that the experiment runs: `90s`, `1.5h`, `2d`, or a number of seconds.",
        firstFormat="maxExecDuration",
        changeable=True,
    )
    max_trial_number: int | None = _field(  # the most that NNI takes
        "Maximum number of trials.",
        ge=1,
        le=999_999_999,
        marks={"firstFormat": "maxTrialNum", "changeable": True},
    )
    max_trial_duration: Any = _format(
        "duration",
        "Maximum time that a trial runs before it is stopped: `90s`, `1.5h`, or a number of seconds.",
        firstFormat="maxTrialDuration",
        changeable=True,
    )
    max_trial_retries: int | None = _ours(
        "Maximum number of retries after the trial's own code failed, or after a time limit of its platform.",
        ge=0,
        marks={"shown": "0", "firstFormat": "maxTrialRetries"},
    )
    max_platform_retries: int | None = _ours(
        "Maximum number of retries after the platform ended the job: preempted, evicted or lost.",
        ge=0,
        le=10_000,
        marks={"shown": "2", "firstFormat": "maxPlatformRetries"},
    )
    max_same_failures: int | None = _ours(
        "Number of consecutive trials with the same failure that puts the experiment on hold. 0: unlimited.",
        ge=0,
        le=1000,
        marks={"shown": "10", "firstFormat": "maxSameFailures"},
    )
    max_failed_trials: Any = _ours(
        "Maximum number of failed trials, or a percentage of `maxTrialNumber` (`20%`). More put the experiment on"
        " hold.",
        marks={"format": "count-or-share", "firstFormat": "maxFailedTrials"},
    )
    max_unusable_results: int | None = _ours(
        "The experiment goes on hold if its first successful trials, this many, have no usable result. 0: no hold.",
        ge=0,
        le=1000,
        marks={"shown": "5", "firstFormat": "maxUnusableResults"},
    )
    keep_checkpoints: Any = _ours(
        "Successful trials whose checkpoints are kept: `all`, `none`, or, for example, `best 3` by final result.",
        marks={"format": "kept-checkpoints", "shown": "`all`", "firstFormat": "keepCheckpoints"},
    )
    grace_period: Any = _ours(
        "Time between SIGTERM and SIGKILL when a trial is stopped, in seconds or as `5s`.",
        marks={"format": "pause", "shown": "`5s`", "firstFormat": "gracePeriod"},
    )
    metric_grace: Any = _ours(
        "Time to wait for the results of a finished trial, in seconds or as `10s`.",
        marks={"format": "pause", "shown": "`10s`", "firstFormat": "metricGrace"},
    )
    max_log_size: Any = _ours(
        "Maximum size of the logs of one attempt on another machine. Beyond it, the beginning and the end are kept."
        " Logs on this machine are not cut; a warning names the first attempt that exceeds the size.",
        marks={"format": "memory", "shown": "`100MB`", "firstFormat": "maxLogSize"},
    )
    max_result_size: Any = _ours(
        "Maximum size of the results of one attempt. Further intermediate results are dropped with a message on the"
        " trial; its final result still counts.",
        marks={"format": "memory", "shown": "`64MB`", "firstFormat": "maxResultSize"},
    )
    nni_manager_ip: Any = _format(
        "nonblank",
        "Address at which jobs reach this machine.",
        shown="this machine's address",
        firstFormat="nniManagerIp",
    )
    use_annotation: bool = _field(
        "Only `false` is accepted: code annotation is not supported.",
        default=False,
        marks={"shown": "`false`", "firstFormat": "useAnnotation"},
    )
    multi_phase: bool | None = _field(
        "Only `false` is accepted: multi-phase trials are not supported.",
        marks={"shown": "`false`", "firstFormat": "multiPhase"},
    )
    debug: bool = _field(
        "Log at level `debug` and skip the version check.",
        default=False,
        marks={"shown": "`false`", "firstFormat": "debug"},
    )
    version_check: bool | None = _field(
        "Refuse trial runners of another version. NNI has this field in its first format only.",
        marks={"shown": "`true`", "ours": True, "firstFormat": "versionCheck"},
    )
    log_level: LogLevel | None = _field(
        "Log level: `fatal`, `error`, `warning`, `info`, `debug` or `trace`. The field `debug` sets it to `debug`.",
        marks={"shown": "`info`", "firstFormat": "logLevel"},
    )
    log_collection: Literal["http", "none"] | None = _field(
        "`http` or `none`, from the first format; used only by platforms that support it.",
        marks={"shown": "`none`", "ours": True, "firstFormat": "logCollection"},
    )
    experiment_working_directory: Any = _format(
        "makeable-directory",
        "Folder in which the experiment's folder is created.",
        shown="the data directory",
        firstFormat="logDir",
    )
    tuner_gpu_indices: Any = _format(
        "gpu-indices", 'Indices of the GPUs that the tuner sees: `[0, 1]`, `0` or `"0,1"`.'
    )
    tuner_python: Any = _ours(
        "Python that runs a tuner or assessor of your own: a path, or a name on `PATH`.",
        marks={"format": "program", "placeholders": "kept", "shown": "`python3`", "firstFormat": "tunerPython"},
    )
    caller_environment: Any = _ours(
        "Variables of your environment that the tuner and trials on this machine inherit, such as `[PATH, HOME]`; `[]`:"
        " none.",
        marks={"format": "variable-names", "shown": "all", "firstFormat": "callerEnvironment"},
    )
    warm_start: Any = _ours(
        "Ids of experiments whose results the tuner receives before its first proposal, if they fit the search space.",
        marks={"format": "experiment-ids", "firstFormat": "warmStart"},
    )
    tuner: Any = _section(
        "Tuner: `name` and `classArgs` of a built-in one, or `className`, `codeDirectory` and `classArgs` of your own."
        " Required unless `optimizeMode` or `objectives` is set.",
        shown="Auto with `optimizeMode`, TPE with `objectives`",
        advice="add for example tuner: {name: TPE}, or, for Auto, optimizeMode: maximize or minimize",
    )
    optimize_mode: Literal["maximize", "minimize"] | None = _ours(
        "Runs the tuner Auto, if no `tuner` is set, for the highest (`maximize`) or lowest (`minimize`) results.",
        marks={"firstFormat": "optimizeMode"},
    )
    assessor: Any = _section("Assessor, which stops trials early. Same fields as `tuner`.")
    objectives: Any = _section(
        "Keys of final results to optimize: `{accuracy: maximize, latency: minimize}`. Not set: the result, or its key"
        " `default`. Not in NNI.",
        ours=True,
        firstFormat="objectives",
    )
    constraints: Any = _section(
        'Limits of keys of final results: `{memory: "<= 8"}`, with `<=`, `>=`, `<` or `>`. Requires `objectives`.'
        " Not in NNI.",
        ours=True,
        firstFormat="constraints",
    )
    advisor: Any = _section("Older name of `tuner`.")
    training_service: Any = _section(
        "Section of one platform, or a list of sections; see below.",
        shown="required",
        advice="add for example trainingService: {platform: local}",
    )
    shared_storage: Any = _section("Folder that the manager and its trials mount; see below.")
    deprecated: dict[str, Any] | None = _field(
        "Fields that only the first format has. `multiThread: true` runs each `generate_parameters` of your own tuner"
        " in a separate thread, so that it may wait for another result.",
        marks={"opaque": True},
    )


_MARKS = {name: marks_of(field) for name, field in fields_of(Experiment).items()}
#: Every field of the top level, in the order of the canonical form.
FIELDS = tuple(_MARKS)


def marked(mark: str) -> dict[str, Any]:
    """The fields with a mark → its value."""
    return {name: marks[mark] for name, marks in _MARKS.items() if mark in marks}
