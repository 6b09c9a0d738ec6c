"""The first trials: a quasi-random sequence, which covers the space more evenly than chance.

Halton's sequence with permuted digits for each dimension (A. B. Owen, "A randomized Halton algorithm in R", 2017). A
point depends only on seed and number.
"""

from __future__ import annotations

import random
from functools import cache, lru_cache
from itertools import count

#: Number of digits: 2**-20 is finer than a search needs.
_DIGITS = 20


def point(seed: int, number: int, dimensions: int) -> list[float]:
    """The point with that number, from 0, in the unit cube."""
    return [_coordinate(seed, number, base) for base in _primes(dimensions)]


def _coordinate(seed: int, number: int, base: int) -> float:
    value, weight = 0.0, 1.0
    for digit, permutation in enumerate(_permutations(seed, base)):
        weight /= base
        value += permutation[number // base**digit % base] * weight
    return min(value, 1 - 2.0**-53)


@cache
def _permutations(seed: int, base: int) -> list[list[int]]:
    source = random.Random(f"{seed}/halton/{base}")  # noqa: S311 - no secret
    return [source.sample(range(base), base) for _ in range(_DIGITS) if base**_ < 2**_DIGITS]


@lru_cache(maxsize=16)
def _primes(how_many: int) -> list[int]:
    found: list[int] = []
    for number in count(2):
        if len(found) >= how_many:
            return found
        if all(number % prime for prime in found if prime * prime <= number):
            found.append(number)
    raise AssertionError("there are infinitely many primes")
