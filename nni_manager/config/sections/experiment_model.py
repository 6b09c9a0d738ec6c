"""The fields at the top of an experiment file, each stated once: name, type, format, default and sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import ConfigDict, Field

from nni_manager.config.sections.model_fields import fields_of, marks_of
from nni_manager.platform_kit.section_model import Part


def _field(sentence: str, *, default: Any = None, marks: Mapping[str, Any] | None = None, **rules: Any) -> Any:
    """A field with its sentence. `rules`: pydantic's. `marks`, besides those of `platform_kit.section_model`:

    * ``shown``: the default in the documentation, where it is not ``none``
    * ``advice``: the end of the sentence that refuses a file without the field
    * ``ours``: NNI does not know the field
    * ``firstFormat``: the field's name in NNI's first format
    * ``changeable``: the field may change while the experiment exists
    * ``apart``: a section that another module reads
    """
    return Field(default=default, description=sentence, json_schema_extra=dict(marks or {}) or None, **rules)


def _format(format: str, sentence: str, **marks: Any) -> Any:
    return _field(sentence, marks={"format": format, **marks})


def _ours(sentence: str, *, marks: Mapping[str, Any] | None = None, **rules: Any) -> Any:
    """A field that NNI does not know, in both formats of files."""
    return _field(f"{sentence} Ours.", marks={"ours": True, **(marks or {})}, **rules)


def _section(sentence: str, **marks: Any) -> Any:
    return _field(sentence, marks={"apart": True, **marks})


LogLevel = Literal["fatal", "error", "warning", "info", "debug", "trace"]


class Experiment(Part):
    """The top level of an experiment file, in the order of the canonical form."""

    model_config = ConfigDict(defer_build=True)

    experiment_name: Any = _format(
        "title",
        "Shown in lists and on pages.",
        placeholders="your",
        firstFormat="experimentName",
        changeable=True,
    )
    experiment_type: Literal["hpo", "nas"] = _field(
        "`hpo`; architecture search (`nas`) is refused.", default="hpo", marks={"shown": "`hpo`"}
    )
    search_space_file: Any = _section(
        "A JSON or YAML file that holds the search space, in place of `searchSpace`; where both are given, the file"
        " counts.",
        firstFormat="searchSpacePath",
    )
    search_space: Any = _section(
        "The search space itself: name → {`_type`, `_value`}; an empty one is `{}`.", changeable=True
    )
    trial_command: Any = _format(
        "nonblank",
        "Shell command of a trial, unless every platform's section has one.",
        shown="required",
        advice="say which command runs a trial, for example python3 trial.py",
        placeholders="kept",
    )
    trial_code_directory: Any = _format("directory", "Folder of the trial's code.", shown="`.`")
    trial_concurrency: int | None = _field(
        "How many trials may run at a time, 1 to 100000.",
        ge=1,
        le=100_000,
        marks={
            "shown": "required",
            "advice": "say how many trials may run at a time, for example 1",
            "firstFormat": "trialConcurrency",
            "changeable": True,
        },
    )
    trial_gpu_number: int | None = _field(
        "GPUs of a trial; not set: all visible, none reserved; 0: none visible.", ge=0
    )
    trial_gpu_memory: Any = _ours(
        "Memory of each GPU of a trial, such as `8GB`: trials share GPUs as far as it goes.",
        marks={"format": "memory", "firstFormat": "trialGpuMemory"},
    )
    trial_python_version: Any = _ours(
        'The Python that trials need as `python3`, such as `"3.11"`: machines are asked before anything starts.',
        marks={"format": "python-version", "firstFormat": "trialPythonVersion"},
    )
    max_experiment_duration: Any = _format(
        "duration",
        "How long it may be active: `90s`, `1.5h`, `2d`, or seconds.",
        firstFormat="maxExecDuration",
        changeable=True,
    )
    max_trial_number: int | None = _field(  # the most that NNI takes
        "How many trials are made in all.",
        ge=1,
        le=999_999_999,
        marks={"firstFormat": "maxTrialNum", "changeable": True},
    )
    max_trial_duration: Any = _format(
        "duration",
        "How long one trial may run; then it is stopped.",
        firstFormat="maxTrialDuration",
        changeable=True,
    )
    max_trial_retries: int | None = _ours(
        "How often a trial is tried again when its own code failed.",
        ge=0,
        marks={"shown": "0", "firstFormat": "maxTrialRetries"},
    )
    max_platform_retries: int | None = _ours(
        "How often a trial is tried again when its platform took its job away: preempted, evicted, lost.",
        ge=0,
        le=10_000,
        marks={"shown": "2", "firstFormat": "maxPlatformRetries"},
    )
    max_same_failures: int | None = _ours(
        "So many trials in a row that fail in the same way put the experiment on hold; 0: any number may.",
        ge=0,
        le=1000,
        marks={"shown": "10", "firstFormat": "maxSameFailures"},
    )
    max_failed_trials: Any = _ours(
        "How many trials may fail, or what share of `maxTrialNumber` (`20%`); one more puts it on hold.",
        marks={"format": "count-or-share", "firstFormat": "maxFailedTrials"},
    )
    max_unusable_results: int | None = _ours(
        "Number of trials that puts the experiment on hold if they are the first to succeed and have no usable result."
        " 0: no hold.",
        ge=0,
        le=1000,
        marks={"shown": "5", "firstFormat": "maxUnusableResults"},
    )
    keep_checkpoints: Any = _ours(
        "Which trials keep their checkpoints once they have ended well: `all`, `none`, or `best 3`, those with the best"
        " final results.",
        marks={"format": "kept-checkpoints", "shown": "`all`", "firstFormat": "keepCheckpoints"},
    )
    grace_period: Any = _ours(
        "Time between SIGTERM and SIGKILL.", marks={"format": "pause", "shown": "`5s`", "firstFormat": "gracePeriod"}
    )
    metric_grace: Any = _ours(
        "How long results of a trial that has ended are waited for.",
        marks={"format": "pause", "shown": "`10s`", "firstFormat": "metricGrace"},
    )
    max_log_size: Any = _ours(
        "Size of the logs of one attempt that is kept where it runs elsewhere; of more, beginning and end. Logs on this"
        " machine are not cut: a warning names the first attempt that writes more.",
        marks={"format": "memory", "shown": "`100MB`", "firstFormat": "maxLogSize"},
    )
    max_result_size: Any = _ours(
        "Size of the results of one attempt. Later intermediate results are dropped, and the trial says so; its final"
        " result still counts.",
        marks={"format": "memory", "shown": "`64MB`", "firstFormat": "maxResultSize"},
    )
    nni_manager_ip: Any = _format(
        "nonblank", "How jobs reach this machine.", shown="this machine's address", firstFormat="nniManagerIp"
    )
    use_annotation: bool = _field(
        "Accepted as false; code annotation is refused.",
        default=False,
        marks={"shown": "`false`", "firstFormat": "useAnnotation"},
    )
    multi_phase: bool | None = _field(
        "Accepted as false; multi-phase trials are refused.", marks={"shown": "`false`", "firstFormat": "multiPhase"}
    )
    debug: bool = _field(
        "Log more, skip the version check.", default=False, marks={"shown": "`false`", "firstFormat": "debug"}
    )
    version_check: bool | None = _field(
        "Refuse trial runners of another version. Ours here, NNI's in the first format.",
        marks={"shown": "`true`", "ours": True, "firstFormat": "versionCheck"},
    )
    log_level: LogLevel | None = _field(
        "`fatal`, `error`, `warning`, `info`, `debug` or `trace`; with `debug`: `debug`.",
        marks={"shown": "`info`", "firstFormat": "logLevel"},
    )
    log_collection: Literal["http", "none"] | None = _field(
        "`http` or `none`: kept from the first format for the platforms that go by it.",
        marks={"shown": "`none`", "ours": True, "firstFormat": "logCollection"},
    )
    experiment_working_directory: Any = _format(
        "makeable-directory",
        "Where the experiment's folder is made.",
        shown="the data directory",
        firstFormat="logDir",
    )
    tuner_gpu_indices: Any = _format("gpu-indices", 'GPUs that the tuner sees: `[0, 1]`, `0` or `"0,1"`.')
    tuner_python: Any = _ours(
        "The Python of a tuner or assessor of your own: a path, or a name on `PATH`.",
        marks={"format": "program", "placeholders": "kept", "shown": "`python3`", "firstFormat": "tunerPython"},
    )
    caller_environment: Any = _ours(
        "Names of the variables of your environment that are kept for the tuner and for trials on this machine, such as"
        " `[PATH, HOME]`; `[]`: none.",
        marks={"format": "variable-names", "shown": "all", "firstFormat": "callerEnvironment"},
    )
    warm_start: Any = _ours(
        "Ids of other experiments, whose results the tuner is told before its first proposal, as far as they fit the"
        " search space.",
        marks={"format": "experiment-ids", "firstFormat": "warmStart"},
    )
    tuner: Any = _section(
        "`name` and `classArgs` of a built-in, or `className`, `codeDirectory` and `classArgs`.",
        shown="Auto, with `optimizeMode`",
        advice="add for example tuner: {name: TPE}, or, for Auto, optimizeMode: maximize or minimize",
    )
    optimize_mode: Literal["maximize", "minimize"] | None = _ours(
        "Instead of `tuner`: Auto searches, for the greatest results (`maximize`) or the smallest (`minimize`).",
        marks={"firstFormat": "optimizeMode"},
    )
    assessor: Any = _section("As `tuner`.")
    objectives: Any = _section(
        "What is searched for, by the keys of final results: `{accuracy: maximize, latency: minimize}`; not set: the"
        " number, or its `default`. Ours.",
        ours=True,
        firstFormat="objectives",
    )
    constraints: Any = _section(
        'What results must satisfy, by their keys: `{memory: "<= 8"}`, with `<=`, `>=`, `<` or `>`; only with'
        " `objectives`. Ours.",
        ours=True,
        firstFormat="constraints",
    )
    advisor: Any = _section("An older name of `tuner`.")
    training_service: Any = _section(
        "One platform's section, or a list of several.",
        shown="required",
        advice="add for example trainingService: {platform: local}",
    )
    shared_storage: Any = _section("A folder that the manager and its trials mount; see below.")
    deprecated: dict[str, Any] | None = _field(
        "Fields of the first format without a place in the second one. With `multiThread: true`, each proposal of your"
        " own tuner is generated in a thread of its own and may wait for the result of another trial.",
        marks={"opaque": True},
    )


_MARKS = {name: marks_of(field) for name, field in fields_of(Experiment).items()}
#: Every field of the top level, in the order of the canonical form.
FIELDS = tuple(_MARKS)


def marked(mark: str) -> dict[str, Any]:
    """The fields with a mark → its value."""
    return {name: marks[mark] for name, marks in _MARKS.items() if mark in marks}
