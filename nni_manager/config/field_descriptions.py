"""What the fields at the top of a config mean, for its reference documentation: default and sentence."""

from __future__ import annotations

from collections.abc import Mapping

#: Field → (default, meaning), of the second format.
TOP_LEVEL: Mapping[str, tuple[str, str]] = {
    "experimentName": ("none", "Shown in lists and on pages."),
    "experimentType": ("`hpo`", "`hpo`; architecture search (`nas`) is refused."),
    "searchSpaceFile": ("none", "A JSON or YAML file that holds the search space; either this or `searchSpace`."),
    "searchSpace": ("none", "The search space itself: name → {`_type`, `_value`}; an empty one is `{}`."),
    "trialCommand": ("required", "Shell command of a trial, unless every platform's section has one."),
    "trialCodeDirectory": ("`.`", "Folder of the trial's code."),
    "trialConcurrency": ("required", "How many trials may run at a time, 1 to 100000."),
    "trialGpuNumber": ("none", "GPUs of a trial; not set: all visible, none reserved; 0: none visible."),
    "trialGpuMemory": (
        "none",
        "Memory of each GPU of a trial, such as `8GB`: trials share GPUs as far as it goes. Ours.",
    ),
    "maxExperimentDuration": ("none", "How long it may be active: `90s`, `1.5h`, `2d`, or seconds."),
    "maxTrialNumber": ("none", "How many trials are made in all."),
    "maxTrialDuration": ("none", "How long one trial may run; then it is stopped."),
    "maxTrialRetries": ("0", "How often a trial is tried again when its own code failed. Ours."),
    "gracePeriod": ("`5s`", "Time between SIGTERM and SIGKILL. Ours."),
    "metricGrace": ("`10s`", "How long results of a trial that has ended are waited for. Ours."),
    "nniManagerIp": ("this machine's address", "How jobs reach this machine."),
    "useAnnotation": ("`false`", "Accepted as false; code annotation is refused."),
    "multiPhase": ("`false`", "Accepted as false; multi-phase trials are refused."),
    "debug": ("`false`", "Log more, skip the version check."),
    "versionCheck": ("`true`", "Refuse trial runners of another version. Ours here, NNI's in the first format."),
    "logLevel": ("`info`", "`fatal`, `error`, `warning`, `info`, `debug` or `trace`; with `debug`: `debug`."),
    "logCollection": ("`none`", "`http` or `none`: kept from the first format for the platforms that go by it."),
    "experimentWorkingDirectory": ("the data directory", "Where the experiment's folder is made."),
    "tunerGpuIndices": ("none", 'GPUs that the tuner sees: `[0, 1]`, `0` or `"0,1"`.'),
    "tunerPython": (
        "`python3`",
        "The Python of a tuner or assessor of your own: a path, or a name on `PATH`. Ours.",
    ),
    "tuner": ("required", "`name` and `classArgs` of a built-in, or `className`, `codeDirectory` and `classArgs`."),
    "assessor": ("none", "As `tuner`."),
    "advisor": ("none", "An older name of `tuner`."),
    "trainingService": ("required", "One platform's section, or a list of several."),
    "sharedStorage": ("none", "A folder that all platforms mount; see below."),
    "deprecated": ("none", "Fields of the first format that nothing goes by: `multiThread` and the like."),
}
