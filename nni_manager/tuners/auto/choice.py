"""The method that Auto chooses, and the sentence about it."""

from __future__ import annotations

from dataclasses import dataclass

from nni_manager.domain.space.dimension import Choice as ChoiceDimension
from nni_manager.domain.space.grid import number_of_points
from nni_manager.domain.space.search_space import SearchSpace

#: Maximum number of results for the model: with more, one proposal takes longer than trials may last.
_MODEL_RESULTS = 200
#: Maximum number of coordinates for the model: a choice has one for each option.
_MODEL_WIDTH = 100
#: Bounds of the number of quasi-random trials, and their share of all.
_START_LEAST, _START_MOST, _START_SHARE = 4, 10, 1 / 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The parts of a search."""

    #: Number of results after which the quasi-random start ends.
    start: int
    #: Number of results and running trials after which the model is not used any more.
    model_until: int
    sentence: str
    #: Maximum number of distinct proposals; the model is useless when all were tried.
    points: float


def choose(space: SearchSpace, trials: int | None, concurrency: int) -> Choice:
    """`trials`: maximum number of the experiment, None: unlimited."""
    dimensions = len(space.places)
    start = max(_START_LEAST, min(dimensions, _START_MOST))
    if trials is not None:
        start = max(min(start, int(trials * _START_SHARE)), 1)
    fits = _width(space) <= _MODEL_WIDTH and concurrency < _MODEL_RESULTS
    until = _MODEL_RESULTS if fits else 0
    return Choice(
        start=start,
        model_until=until,
        sentence=_sentence(space, trials, concurrency, start, until),
        points=number_of_points(space),
    )


def _sentence(space: SearchSpace, trials: int | None, concurrency: int, start: int, until: int) -> str:
    what = f"{_described(space)}, {trials or 'any number of'} trials and {concurrency} at a time"
    begin = f"Auto begins with {start} quasi-random trials"
    if not until:
        why = "too many for a model" if concurrency < _MODEL_RESULTS else "too many at a time for a model"
        return f"{begin}, then steps from the best: {what} are {why}."
    after = "" if trials is not None and trials <= until else f", and steps from the best from {until} results on"
    return f"{begin}, then a Gaussian process{after}: {what} are few enough for a model."


def _described(space: SearchSpace) -> str:
    count = len(space.places)
    choices = sum(isinstance(place.dimension, ChoiceDimension) for place in space.places)
    conditional = sum(bool(place.parent) for place in space.places)
    words = [f"{choices} choices"] if choices else []
    words += [f"{conditional} in branches"] if conditional else []
    return f"{count} dimensions" + (f" ({', '.join(words)})" if words else "")


def _width(space: SearchSpace) -> int:
    sizes = (place.dimension.size if isinstance(place.dimension, ChoiceDimension) else 1 for place in space.places)
    return sum(size for size in sizes if size is not None)
