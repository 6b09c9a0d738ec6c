"""`warmStart`: a new experiment's tuner gets the results of other experiments.

They are stored in the new experiment like an import, so it no longer needs the others. Results that a built-in tuner
cannot use (parameters outside the search space, values that are not numbers) are left out and counted in a warning.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from nni_manager.domain.errors import InvalidInput, NotFound
from nni_manager.domain.experiment import ConfigWarning, ExperimentSpec
from nni_manager.domain.metrics import default_number
from nni_manager.domain.objectives import Goals
from nni_manager.domain.space import search_space
from nni_manager.domain.space.parameters import text_of
from nni_manager.scheduler.experiments.submission import Submission
from nni_manager.scheduler.experiments.supervisor import Supervisor
from nni_manager.store.experiment import history
from nni_manager.tuners import batch
from nni_manager.tuners.registry import CATALOGUE as TUNERS

Entry = Mapping[str, object]


async def with_results(submission: Submission, supervisor: Supervisor) -> Submission:
    """The submission with the results that its config requests, and warnings about unusable ones.

    Raises InvalidInput for an experiment that does not exist, StoreError for one that cannot be read.
    """
    spec = submission.spec
    fits, found, warnings = _judge(spec), [], []
    for id_ in spec.warm_start:
        results = await _read(id_, supervisor)
        used = [entry for entry in results if fits(entry)]
        found += [used] if used else []
        warnings += [_warning(id_, len(results), len(used))] if not used or len(used) < len(results) else []
    return replace(submission, spec=replace(spec, warnings=(*spec.warnings, *warnings)), imported=found)


async def _read(id_: str, supervisor: Supervisor) -> Sequence[Entry]:
    read: Callable[[sqlite3.Connection], Sequence[Entry]] = history.results
    experiment = supervisor.get(id_)
    if experiment is not None:
        return await experiment.database.read(read)
    try:
        return await supervisor.closed_ones.read(id_, lambda _: read)
    except NotFound:
        raise InvalidInput(
            f"warmStart: cannot find experiment {id_}; `nnictl experiment list --all` lists all"
        ) from None


def _judge(spec: ExperimentSpec) -> Callable[[Entry], bool]:
    """Whether the tuner can use a result. A user's tuner gets all, as its search space may have any form."""
    if spec.tuner.name not in TUNERS.names:
        return _is_storable
    is_inside, goals = _search_space(spec), Goals.of(spec.tuner.objectives, spec.tuner.constraints)
    is_usable = _is_finite if not goals.objectives else lambda value: goals.judge(value) is not None
    return lambda entry: is_inside(entry["parameter"]) and is_usable(entry["value"]) and _is_storable(entry)


def _search_space(spec: ExperimentSpec) -> Callable[[object], bool]:
    """Whether parameters are in the search space, as the tuner reads it."""
    tuner = TUNERS.find(spec.tuner.name)
    if tuner.has_own_space:
        listed = {text_of(one) for one in batch.sets(spec.search_space)}
        return lambda parameters: text_of(parameters) in listed
    space = search_space.parse(spec.search_space)
    return lambda parameters: space.contains(_without(parameters, tuner.beside))


def _without(parameters: object, names: Collection[str]) -> object:
    if not names or not isinstance(parameters, Mapping):
        return parameters
    return {name: value for name, value in parameters.items() if name not in names}


def _is_finite(value: object) -> bool:
    number = default_number(value)
    return number is not None and math.isfinite(number)


def _is_storable(entry: Entry) -> bool:
    """Whether it contains no NaN, which JSON lacks."""
    try:
        json.dumps(entry, allow_nan=False)
    except ValueError:
        return False
    return True


def _warning(id_: str, there: int, used: int) -> ConfigWarning:
    message = f"experiment {id_} has no results, so the tuner gets none from it"
    if there:
        message = (
            f"{there - used} of the {there} results of experiment {id_} are not numbers or do not fit the search space,"
            f" and are left out; the tuner gets {used}"
        )
    return ConfigWarning(code="WARM_START", message=message, field="warmStart")
