"""Proposals without repetition."""

from __future__ import annotations

import itertools
import math

from nni.common.hpo_utils.formatting import ParameterSpec, deformat_parameters
from nni.tuner import NoMoreTrialError
from nni.utils import dump

TYPE_CHECKING = False  # `typing` is slow to import and only checkers need it
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, List, Optional, Set

    from nni.common.hpo_utils.formatting import FormattedParameters, FormattedSearchSpace


class Deduplicator:
    """Replaces repeated parameters by the next ones of a grid, all in flat form."""

    def __init__(self, formatted_search_space: FormattedSearchSpace) -> None:
        self._space = formatted_search_space
        self._history: Set[str] = set()
        self._grid: Optional[Iterator[FormattedParameters]] = None

    def __call__(self, formatted_parameters: FormattedParameters) -> FormattedParameters:
        """The parameters if they are new, or others. Raises NoMoreTrialError when all have been proposed."""
        if any(_never_repeats(spec) for spec in self._space.values()) or self._is_new(formatted_parameters):
            return formatted_parameters
        if self._grid is None:
            self._grid = _grid(list(self._space.values()))
        for found in self._grid:
            if self._is_new(found):
                return found
        raise NoMoreTrialError()

    def add_history(self, formatted_parameters: FormattedParameters) -> None:
        """Notes parameters that were proposed elsewhere."""
        self._is_new(formatted_parameters)

    def _is_new(self, flat: FormattedParameters) -> bool:
        """Whether they are proposed for the first time; notes them."""
        count = len(self._history)
        self._history.add(dump(deformat_parameters(flat, self._space), sort_keys=True))
        return len(self._history) > count


def _never_repeats(spec: ParameterSpec) -> bool:
    """Whether two draws are never equal; a dimension inside a choice may be absent twice."""
    return not spec.is_nested() and _is_continuous(spec) and spec.q is None


def _is_continuous(spec: ParameterSpec) -> bool:
    if spec.categorical:
        return False
    first, second = (0, spec.sigma) if spec.normal_distributed else (spec.low, spec.high)
    return first < second  # type: ignore[operator]


def _grid(specs: List[ParameterSpec]) -> Iterator[FormattedParameters]:
    """All combinations; unbounded dimensions in ever finer or wider steps."""
    is_finite = not any(_is_continuous(spec) and (spec.q is None or spec.normal_distributed) for spec in specs)
    for level in (1,) if is_finite else itertools.count(1):
        yield from _combinations(specs, {}, level)


def _combinations(specs: List[ParameterSpec], made: Dict[Any, Any], level: int) -> Iterator[FormattedParameters]:
    if not specs:
        yield dict(made)
        return
    first, *others = specs
    for value in _values(first, level) if first.is_activated_in(made) else ():
        yield from _combinations(others, {**made, first.key: value}, level)
    if not first.is_activated_in(made):
        yield from _combinations(others, made, level)


def _values(spec: ParameterSpec, level: int) -> Iterator[Any]:
    if spec.categorical:
        return iter(range(spec.size or 0))
    if not _is_continuous(spec):
        return iter((spec.mu if spec.normal_distributed else spec.low,))
    if spec.clip is not None:
        return _multiples(spec)
    shares = (number / 2**level for number in range(1, 2**level))
    return (_at(spec, share) for share in shares)


def _multiples(spec: ParameterSpec) -> Iterator[float]:
    """Both bounds, and the multiples of the step between them."""
    (low, high), step = spec.clip, spec.q  # type: ignore[misc]
    inner = (number * step for number in range(math.ceil(low / step), math.floor(high / step) + 1))  # type: ignore
    values = itertools.chain((low,), inner, (high,))
    return (math.log(value) if spec.log_distributed else value for value in values)


def _at(spec: ParameterSpec, share: float) -> float:
    """The flat value below which this share of the draws lies; of a normal distribution about so."""
    if spec.normal_distributed:
        return spec.mu + spec.sigma * math.log(share / (1 - share)) / 1.702  # type: ignore[operator]
    return spec.low + (spec.high - spec.low) * share  # type: ignore[operator]
