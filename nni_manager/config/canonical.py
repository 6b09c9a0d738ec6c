"""The canonical mapping (NNI's experiment profile `params`) → `ExperimentSpec`. The one place that knows both.

The mapping is complete and valid: a dialect made it. Keys are camelCase, absent fields are left out, paths are
absolute, durations are as the user wrote them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from nni_manager.config.scalars import seconds, whole_seconds
from nni_manager.domain.experiment import AlgorithmSpec, ExperimentSpec, PlatformSpec
from nni_manager.domain.service import NAME, service_names, without_name

_ToSpec = Callable[[Any], Any]
#: Fields that `ExperimentSpec` itself has a default of.
_DEFAULTED: Mapping[str, tuple[str, _ToSpec]] = {
    "maxTrialRetries": ("max_trial_retries", int),
    "gracePeriod": ("grace_period_s", lambda raw: float(seconds(raw))),
    "metricGrace": ("metric_grace_s", lambda raw: float(seconds(raw))),
    "versionCheck": ("version_check", bool),
    "logCollection": ("log_collection", str),
    "tunerPython": ("tuner_python", str),
}


def to_spec(canonical: Mapping[str, Any]) -> ExperimentSpec:
    """What a platform's section may set for itself (command, code, GPUs, `nniManagerIp`, `debug`) is what the first
    platform uses; each platform's settings hold its own."""
    platforms = _platforms(canonical["trainingService"])
    first = {**canonical, **platforms[0].settings}
    return ExperimentSpec(
        name=canonical.get("experimentName"),
        search_space=canonical["searchSpace"],
        trial_command=first.get("trialCommand", ""),
        trial_code_directory=first["trialCodeDirectory"],
        trial_concurrency=canonical["trialConcurrency"],
        trial_gpu_number=first.get("trialGpuNumber"),
        max_experiment_duration_s=_optional(canonical.get("maxExperimentDuration"), whole_seconds),
        max_trial_number=canonical.get("maxTrialNumber"),
        max_trial_duration_s=_optional(canonical.get("maxTrialDuration"), whole_seconds),
        debug=first["debug"],
        log_level=canonical["logLevel"],
        working_directory=canonical["experimentWorkingDirectory"],
        tuner_gpu_indices=_optional(canonical.get("tunerGpuIndices"), tuple),
        tuner=_algorithm(canonical["tuner"]),
        assessor=_optional(canonical.get("assessor"), _algorithm),
        platforms=platforms,
        shared_storage=canonical.get("sharedStorage"),
        manager_ip=first.get("nniManagerIp", ""),
        canonical=canonical,
        **{field: convert(canonical[key]) for key, (field, convert) in _DEFAULTED.items() if key in canonical},
    )


def _platforms(section: Any) -> tuple[PlatformSpec, ...]:
    sections = section if isinstance(section, list) else [section]
    names = service_names((settings["platform"], settings.get(NAME, "")) for settings in sections)
    return tuple(
        PlatformSpec(name=settings["platform"], service=service, settings=without_name(settings))
        for settings, service in zip(sections, names, strict=True)
    )


def _algorithm(section: Mapping[str, Any]) -> AlgorithmSpec:
    return AlgorithmSpec(
        name=section.get("name", ""),
        class_name=section.get("className", ""),
        code_directory=section.get("codeDirectory", ""),
        class_args=section.get("classArgs", {}),
    )


def _optional(value: Any, convert: _ToSpec) -> Any:
    return None if value is None else convert(value)
