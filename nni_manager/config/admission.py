"""Admission: whether this daemon can run an experiment with a valid config.

Platforms check whether they can run it and whether trials can mount its shared storage. The size of code that must be
sent is checked, too.

`create`, `plan`, `nnictl config check` and `nni-manager doctor --config` make the same checks.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from nni_manager.config import class_arguments
from nni_manager.domain.errors import InvalidInput
from nni_manager.domain.experiment import ConfigWarning, ExperimentSpec, Json, PlatformSpec
from nni_manager.domain.results import direction
from nni_manager.domain.space.grid import number_of_points
from nni_manager.domain.space.search_space import parse
from nni_manager.platform_kit import registry
from nni_manager.tuners.registry import CATALOGUE as TUNERS


def check(spec: ExperimentSpec) -> None:
    """Check everything that needs no call to a platform, except users' classes.

    Blocks. Raises InvalidInput.
    """
    check_platforms(spec)
    for directory in {code_directory(spec, service): None for service in spec.platforms if sends_code(spec, service)}:
        from nni_manager.code_archive import require_small  # takes 40 ms to import; local trials do not need it

        require_small(directory)


def check_here(
    spec: ExperimentSpec, data_directory: Path, environment: Mapping[str, str], *, file: str, python: str = ""
) -> tuple[ConfigWarning, ...]:
    """Check everything that `create` checks without a call to a platform.

    Returns the warnings that `create` gives. `python`: the requested Python for a user's tuner, or empty. Blocks.
    Raises InvalidInput.
    """
    check(spec)
    class_arguments.check(spec, data_directory, file, python, environment)
    if not (
        python or spec.tuner_python or spec.has_user_class
    ):  # without a class, save the time of importing the check
        return warnings(spec, file=file)
    import asyncio

    from nni_manager.config import user_classes

    chosen = user_classes.python(python or spec.tuner_python, environment, file=file)
    class_direction = asyncio.run(user_classes.check(spec, chosen, environment, file=file))
    return warnings(spec, class_direction, file=file)


def sends_code(spec: ExperimentSpec, service: PlatformSpec) -> bool:
    """Whether the code directory is packed for jobs of this training service."""
    capabilities = registry.adapter_of(service).capabilities_for(registry.config_of(service))
    return capabilities.ships_code or spec.shared_storage is not None


def code_directory(spec: ExperimentSpec, service: PlatformSpec) -> Path:
    """The code directory of trials on this training service: its own, or the experiment's."""
    return Path(str(service.settings.get("trialCodeDirectory", spec.trial_code_directory)))


def check_platforms(spec: ExperimentSpec) -> None:
    """Checks that the platforms can run an experiment and mount its shared storage. Raises InvalidInput."""
    for service in spec.platforms:
        registry.adapter_of(service).check(spec, registry.config_of(service))
        if spec.shared_storage is not None:
            _check_storage(service, spec.shared_storage)


def _check_storage(service: PlatformSpec, storage: Json) -> None:
    adapter = registry.adapter_of(service)
    if storage["storageType"] in adapter.mounts:
        return
    others = f" of storageType {storage['storageType']}" if adapter.mounts else ""
    instead = adapter.instead_of_shared_storage or f"mount it where {service.name} runs jobs"
    raise InvalidInput(
        f"sharedStorage: trials of {service.service} cannot work on shared storage{others}; remove this section, and"
        f" {instead}"
    )


def warnings(spec: ExperimentSpec, class_direction: str = "", *, file: str = "") -> tuple[ConfigWarning, ...]:
    """The warnings about an experiment file, including those about its tuner.

    `class_direction`: as in `direction.find`.
    """
    return (
        *spec.warnings,
        *direction.warnings(spec.canonical, class_direction, file=file),
        *_too_few_points(spec, file),
    )


def _too_few_points(spec: ExperimentSpec, file: str) -> list[ConfigWarning]:
    """The warning that the search space has fewer points than `maxTrialNumber`."""
    tuner, most = spec.tuner.name, spec.max_trial_number
    if most is None or tuner not in TUNERS.names or not TUNERS.find(tuner).ends:
        return []
    count = number_of_points(parse(spec.search_space))
    if count >= most or (count == 1 and TUNERS.find(tuner).is_wrapped):  # one point is repeated
        return []
    message = (
        f"is {most}, but the search space has only {count} different points (combinations of values). {tuner} proposes"
        f" each point once, and the experiment ends after {count} trials. Lower maxTrialNumber, or add values"
    )
    return [ConfigWarning(code="FEW_POINTS", message=message, field="maxTrialNumber", file=file)]
