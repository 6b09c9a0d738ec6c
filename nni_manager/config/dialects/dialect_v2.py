"""The canonical mapping (NNI's experiment profile `params`) → `ExperimentSpec`. Only this module knows both.

The mapping is complete and valid: a dialect made it. Keys are camelCase, absent fields are left out, paths are
absolute, durations are as the user wrote them.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from nni_manager.assessors.registry import CATALOGUE as ASSESSORS
from nni_manager.config.literal_secrets import judge_literals
from nni_manager.config.reading import scalars
from nni_manager.config.reading.document import Path
from nni_manager.config.reading.scalars import kind, seconds, whole_seconds
from nni_manager.config.reading.source import Source
from nni_manager.config.sections.algorithm_section import judge_algorithms, read_algorithm, read_objectives
from nni_manager.config.sections.experiment_model import FIELDS, Experiment, marked
from nni_manager.config.sections.model_fields import fields_of, marks_of
from nni_manager.config.sections.model_section import section_of, take_fields, valid_settings
from nni_manager.config.sections.platform_section import (
    SHARED,
    judge,
    needs_command,
    read_platforms,
    read_shared_storage,
)
from nni_manager.config.sections.search_space import judge_dimensions, judge_whole, read_search_space
from nni_manager.config.sections.section import Section
from nni_manager.domain.algorithm import AlgorithmSpec, Catalogue
from nni_manager.domain.experiment import ExperimentSpec, PlatformSpec
from nni_manager.domain.service import NAME, service_names, without_name
from nni_manager.tuners.registry import CATALOGUE as TUNERS

_ToSpec = Callable[[Any], Any]
#: Fields for which `ExperimentSpec` itself has a default.
_DEFAULTED: Mapping[str, tuple[str, _ToSpec]] = {
    "maxTrialRetries": ("max_trial_retries", int),
    "maxPlatformRetries": ("max_platform_retries", int),
    "maxSameFailures": ("max_same_failures", int),
    "maxUnusableResults": ("max_unusable_results", int),
    "keepCheckpoints": ("kept_checkpoints", scalars.number_kept),
    "gracePeriod": ("grace_period_s", lambda raw: float(seconds(raw))),
    "maxLogSize": ("max_log_bytes", lambda raw: int(raw) * 2**20),
    "maxResultSize": ("max_result_bytes", lambda raw: int(raw) * 2**20),
    "metricGrace": ("metric_grace_s", lambda raw: float(seconds(raw))),
    "versionCheck": ("version_check", bool),
    "logCollection": ("log_collection", str),
    "tunerPython": ("tuner_python", str),
    "callerEnvironment": ("caller_environment", tuple),
    "warmStart": ("warm_start", tuple),
}


def to_spec(canonical: Mapping[str, Any]) -> ExperimentSpec:
    """The spec of a canonical config.

    A field that each platform's section may set (command, code, GPUs, `nniManagerIp`, `debug`) has the first platform's
    value; each platform's settings hold its own.
    """
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
        max_failed_trials=_optional(
            canonical.get("maxFailedTrials"), lambda limit: scalars.part_of(limit, canonical.get("maxTrialNumber"))
        ),
        max_trial_duration_s=_optional(canonical.get("maxTrialDuration"), whole_seconds),
        debug=first["debug"],
        log_level=canonical["logLevel"],
        working_directory=canonical["experimentWorkingDirectory"],
        tuner_gpu_indices=_optional(canonical.get("tunerGpuIndices"), tuple),
        tuner=replace(
            _algorithm_spec(canonical["tuner"]),
            objectives=canonical.get("objectives", {}),
            constraints=canonical.get("constraints", {}),
        ),
        assessor=_optional(canonical.get("assessor"), _algorithm_spec),
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


def _algorithm_spec(section: Mapping[str, Any]) -> AlgorithmSpec:
    return AlgorithmSpec(
        name=section.get("name", ""),
        class_name=section.get("className", ""),
        code_directory=section.get("codeDirectory", ""),
        class_args=section.get("classArgs", {}),
    )


def _optional(value: Any, convert: _ToSpec) -> Any:
    return None if value is None else convert(value)


#: Fields that only the model reads.
_FIELDS = {name: field for name, field in fields_of(Experiment).items() if not marks_of(field).get("apart")}
_ADVICE = marked("advice")
#: Fields that are checked when they change, as in a new experiment's config.
_CHECKED_ANEW = ("experimentName", "trialConcurrency", "maxTrialNumber")
_OUT_OF_SCOPE = {
    "useAnnotation": (True, "code annotation is not supported; remove this field and give a searchSpace"),
    "multiPhase": (True, "multi-phase trials are not supported; remove this field"),
    "experimentType": ("nas", "neural architecture search is not supported; only hpo is"),
}


def read(values: Mapping[str, object], source: Source) -> ExperimentSpec:
    """The experiment that the values of a file or a canonical config describe.

    Raises ConfigInvalid with all problems.
    """
    top = section_of(values, Experiment, (), source)
    fields = _plain_fields(top, source) | {"searchSpace": read_search_space(top, source)}
    fields |= {"tuner": _tuner(top, fields.pop("optimizeMode", None), source)}
    fields |= {"assessor": _algorithm(top, "assessor", ASSESSORS, source)}
    fields |= read_objectives(top, source)
    _check_kept_checkpoints(fields, source)
    judge_algorithms(top, fields, source)
    _check_search_space(top, fields, source)
    sections = _training_service(top, fields, source)
    fields |= {"trainingService": sections[0] if len(sections) == 1 else sections}
    if top.has("sharedStorage"):
        code = fields.get("trialCodeDirectory")
        fields |= {"sharedStorage": read_shared_storage(top.raw("sharedStorage"), code, source)}
    _require("trialConcurrency", top)
    _refuse_impossible(top, fields)
    judge(sections, ("trainingService",), fields, source)
    judge_literals(fields.get("trialCommand"), sections, source)
    _check_trial_file(fields, sections, source)
    _judge_deprecated(top, fields, source)
    source.check()
    canonical = {name: fields[name] for name in FIELDS if name != "multiPhase" and fields.get(name) is not None}
    return replace(to_spec(canonical), warnings=source.warnings)


_MULTI_THREAD = "multiThread"


def _judge_deprecated(top: Section, fields: Mapping[str, Any], source: Source) -> None:
    """Warn of fields without effect: all except `multiThread` with a user's tuner."""
    deprecated = fields.get("deprecated")
    if deprecated is None:
        return
    if deprecated.keys() != {_MULTI_THREAD}:
        source.warn(("deprecated",), "NO_EFFECT", "has no effect; NNI does not use it either")
    value, place = deprecated.get(_MULTI_THREAD, False), ("deprecated", _MULTI_THREAD)
    if not isinstance(value, bool):
        source.refuse(place, f"must be true or false, not {kind(value)}")
    elif value and "className" not in (fields.get("tuner") or {}):
        source.warn(place, "NO_EFFECT", "has no effect for a built-in tuner, which never waits for another trial")


def read_services(raw: object, canonical: Mapping[str, object], source: Source) -> list[dict[str, object]]:
    """The canonical sections of other training services for an experiment that exists. Raises ConfigInvalid."""
    top = section_of({**canonical, "trainingService": raw}, Experiment, (), source)
    sections = _training_service(top, canonical, source)
    source.check()
    judge(sections, ("trainingService",), {**canonical, "trainingService": sections}, source)
    judge_literals(canonical.get("trialCommand"), sections, source)
    source.check()
    return sections


def check_changed(values: Mapping[str, object]) -> None:
    """Check changed fields that are in `_CHECKED_ANEW`. Raises ConfigInvalid."""
    source = Source(directory="/")
    top = section_of({name: values[name] for name in _CHECKED_ANEW if name in values}, Experiment, (), source)
    _valid_fields(top, source)
    source.check()


def _valid_fields(top: Section, source: Source) -> dict[str, object]:
    return valid_settings(Experiment, take_fields(top, _FIELDS, "", source), (), source)


def _check_kept_checkpoints(fields: Mapping[str, Any], source: Source) -> None:
    if "objectives" in fields and str(fields.get("keepCheckpoints", "")).startswith("best"):
        source.refuse(
            ("keepCheckpoints",), "must be 'all' or 'none' with objectives, because no single trial is the best"
        )


def _plain_fields(top: Section, source: Source) -> dict[str, object]:
    """The single values of the top level, with their defaults."""
    given = _valid_fields(top, source)
    fields = {name: field.default for name, field in _FIELDS.items() if field.default is not None} | given
    defaults = {"trialCodeDirectory": ".", "experimentWorkingDirectory": source.working_directory}
    unset = {name: source.path(path) for name, path in defaults.items() if not top.has(name)}
    return {"logLevel": "debug" if fields["debug"] else "info", **fields, **unset}


def _require(name: str, top: Section) -> None:
    top.require(name, _ADVICE[name])


def _tuner(top: Section, optimize_mode: object, source: Source) -> dict[str, object] | None:
    """The canonical section of the tuner. Default: Auto, for objectives TPE.

    An advisor of NNI is a tuner here.
    """
    is_left_out = not (top.has("tuner") or top.has("advisor"))
    if is_left_out and optimize_mode is None and top.has("objectives"):
        return {"name": "TPE"}
    if optimize_mode is not None:
        if is_left_out:
            return {"name": "Auto", "classArgs": {"optimize_mode": optimize_mode}}
        top.refuse("optimizeMode", "replaces tuner, and tuner is set, too; write tuner.classArgs.optimize_mode")
    if top.has("advisor") and top.has("tuner"):
        top.refuse("advisor", "an advisor is both tuner and assessor, and tuner is set, too; keep one")
    elif top.has("advisor"):
        return _algorithm(top, "advisor", TUNERS, source)
    _require("tuner", top)
    return _algorithm(top, "tuner", TUNERS, source)


def _algorithm(top: Section, name: str, family: Catalogue, source: Source) -> dict[str, object] | None:
    return read_algorithm(top.raw(name), (name,), family, source) if top.has(name) else None


def _check_search_space(top: Section, fields: Mapping[str, Any], source: Source) -> None:
    if source.stored or any(problem.field.startswith("searchSpace") for problem in source.problems.values()):
        return
    space, tuner, before = fields["searchSpace"] or {}, fields["tuner"] or {}, len(source.problems)
    judge_dimensions(space, tuner.get("name"), top, source)
    is_sound = len(source.problems) == before
    if is_sound and not any(one.field.startswith(("tuner", "advisor")) for one in source.problems.values()):
        judge_whole(space, _algorithm_spec(tuner), top, source)


def _training_service(top: Section, fields: Mapping[str, object], source: Source) -> list[dict[str, object]]:
    raw = top.raw("trainingService")
    if any(map(needs_command, raw if isinstance(raw, list) else [raw])):
        _require("trialCommand", top)
    if raw is None:
        _require("trainingService", top)
        return []
    shared = {name: fields[name] for name in SHARED if fields.get(name) is not None}
    sections = read_platforms(raw, ("trainingService",), shared, source)
    if "trialGpuMemory" in shared and sections and not any("trialGpuMemory" in section for section in sections):
        top.refuse("trialGpuMemory", "no platform of this experiment uses it; remove this field")
    return sections


def _refuse_impossible(top: Section, fields: Mapping[str, object]) -> None:
    for name, (value, message) in _OUT_OF_SCOPE.items():
        if fields.get(name) == value:
            top.refuse(name, message)
    if isinstance(fields.get("maxFailedTrials"), str) and fields.get("maxTrialNumber") is None:
        top.refuse(
            "maxFailedTrials", "a percentage requires maxTrialNumber, which is not set; set it, or give a number"
        )


#: ``python3 -u train.py``, ``bash trial.sh`` or ``./trial``, without a `cd` before it.
_NAME = r"[\w.][\w./-]*"
_RUN_FILE = re.compile(
    rf"(?:python[\d.]*(?:\s+-[uBOEIsS]+)*\s+(?={_NAME}\.py\b)|(?:ba|da|z)?sh(?:\s+-[eux]+)*\s+|(?=\./))"
    rf"(?P<file>{_NAME})(?:\s|$)"
)


def _check_trial_file(fields: Mapping[str, object], sections: Sequence[Mapping[str, object]], source: Source) -> None:
    """Warn if the code directory lacks the file that a command runs; an image may contain the file.

    `fields`: of the whole config.
    """
    for path, command, directory in _commands(fields, sections):
        found = _RUN_FILE.match(command)
        if found is None or not os.path.isdir(directory):
            continue
        if not os.path.exists(os.path.join(directory, found["file"])):
            sentence = f"runs {found['file']}, which is not in the code directory {directory}; trials fail without it"
            source.warn(path, "NO_TRIAL_FILE", sentence)


def _commands(
    fields: Mapping[str, object], sections: Sequence[Mapping[str, object]]
) -> Iterator[tuple[Path, str, str]]:
    """The commands of trials: (place in the config, command, code directory).

    First the top level's, then those of services with their own command or code directory.
    """
    told = fields.get("trialCommand"), fields.get("trialCodeDirectory")
    found: list[tuple[Path, object, object]] = [(("trialCommand",), *told)]
    for section in sections:
        own = section.get("trialCommand", told[0]), section.get("trialCodeDirectory", told[1])
        found += [(("trainingService", "trialCommand"), *own)] if own != told else []
    return (
        (path, command, code) for path, command, code in found if isinstance(command, str) and isinstance(code, str)
    )
