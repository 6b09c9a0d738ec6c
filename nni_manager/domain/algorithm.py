"""Tuners and assessors by name, and their arguments.

`tuners.registry` and `assessors.registry` each own a `Catalogue`. A lookup imports no tuner.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from nni_manager.domain import plug_ins
from nni_manager.domain.errors import InvalidInput

_NNI = "nni.algorithms.hpo."
#: Tuners, by name or class, in lower case, that propose the same whatever the results are.
_IGNORING_RESULTS = frozenset(
    (
        *("random", "gridsearch", "grid", "batch", "batchtuner"),
        f"{_NNI}random_tuner.randomtuner",
        f"{_NNI}gridsearch_tuner.gridsearchtuner",
        f"{_NNI}batch_tuner.batchtuner",
    )
)


def ignores_results(tuner: str) -> bool:
    """Whether the proposals of a tuner, given by name or class, do not depend on results."""
    return tuner.lower() in _IGNORING_RESULTS


@dataclass(frozen=True, slots=True, kw_only=True)
class AlgorithmSpec:
    """A tuner or assessor: either a built-in `name` or a user's `class_name`."""

    #: Canonical name of a built-in, e.g. ``TPE``; empty for a user's class.
    name: str = ""
    #: ``module.Class`` of a user's class; empty for a built-in.
    class_name: str = ""
    #: Absolute folder that holds the user's module.
    code_directory: str = ""
    class_args: Mapping[str, object] = field(default_factory=dict)
    #: Of a tuner: key of final results → ``maximize`` or ``minimize``; empty: one number, `default`, is what counts.
    objectives: Mapping[str, object] = field(default_factory=dict)
    #: Of a tuner with objectives: key of final results → a constraint such as ``<= 8``.
    constraints: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """The description of an algorithm, without an import of it."""

    #: As it is shown and stored.
    name: str
    #: ``module:Class``.
    location: str
    aliases: tuple[str, ...] = ()
    #: Keys of `classArgs` that NNI allowed and that change nothing.
    ignored: tuple[str, ...] = ()
    #: ``module:Class`` of a tuner that searches for several objectives; empty: it goes by one number.
    with_objectives: str = ""
    #: Whether it searches for several objectives alone.
    needs_objectives: bool = False
    #: Whether its search space is not one of NNI's dimensions, and it alone can judge it.
    has_own_space: bool = False
    #: Whether it proposes each point of a finite search space once, and then ends.
    ends: bool = False
    #: Whether the class may repeat a point, and `tuners.distinct` prevents that.
    is_wrapped: bool = False
    #: Parameters of its trials in addition to those of the search space.
    beside: tuple[str, ...] = ()
    #: Keys of `classArgs` without a default, and what may be written.
    required: Mapping[str, str] = field(default_factory=dict, hash=False)
    #: Whether the algorithm is part of this package; one of another package checks its arguments itself.
    is_built_in: bool = True

    @property
    def arguments(self) -> tuple[str, ...]:
        """The keys of `classArgs` that the class accepts; imports it."""
        return tuple(inspect.signature(self.load()).parameters)

    def check_arguments(self, class_args: Mapping[str, object]) -> None:
        """Check the names of arguments. Raises InvalidInput that names an unknown or missing one."""
        known = self.arguments if self.is_built_in else tuple(class_args)
        for key in class_args:
            if key not in (*known, *self.ignored):
                words = f"its arguments: {', '.join(known)}" if known else "it takes no arguments"
                raise InvalidInput(f"classArgs.{key}: {self.name} does not have this argument; {words}.")
        for key, sentence in self.missing(class_args).items():
            raise InvalidInput(f"classArgs.{key} {sentence}.")

    def missing(self, class_args: Mapping[str, object]) -> dict[str, str]:
        """Missing arguments: key → message."""
        return {
            key: f"is required with {self.name}; write {words}"
            for key, words in self.required.items()
            if class_args.get(key) is None
        }

    def create(self, class_args: Mapping[str, object]) -> object:
        """An instance. Argument values were checked with the config. Raises InvalidInput and the class's exceptions."""
        self.check_arguments(class_args)
        given = {key: value for key, value in class_args.items() if key not in self.ignored}
        return self.load()(**given)

    def load(self) -> Callable[..., object]:
        """The class itself; imports it."""
        module, _, name = self.location.partition(":")
        loaded: Callable[..., object] = getattr(importlib.import_module(module), name)
        return loaded


@dataclass(frozen=True, slots=True, kw_only=True)
class NniAlgorithm:
    """An algorithm of NNI: its name stands for NNI's class, in the Python of users' classes."""

    name: str
    #: ``module.Class``.
    class_name: str
    aliases: tuple[str, ...] = ()
    #: Arguments that the class always gets.
    class_args: Mapping[str, object] = field(default_factory=dict)
    #: What is installed for it, as pip takes it.
    package: str = "nni"

    def not_installed(self, python: str, refusal: str) -> str:
        """The message for a Python that cannot import it; `refusal`: that Python's error."""
        return f"{self.name} is NNI's own class: {python} -m pip install '{self.package}' ({refusal.rstrip('.')})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """All algorithms of one kind."""

    #: ``tuner`` or ``assessor``.
    kind: str
    built_in: tuple[Algorithm, ...]
    #: Names of NNI's algorithms that this version lacks.
    missing: tuple[str, ...]
    #: Those that NNI's own class stands for, where it is installed.
    of_nni: tuple[NniAlgorithm, ...] = ()
    #: Entry points of other packages.
    group: str

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(algorithm.name for algorithm in self.built_in)

    def find(self, name: str) -> Algorithm:
        """The algorithm of a name or alias, ignoring case; packages come last. Raises InvalidInput."""
        if (found := self.look_up(name)) is not None:
            return found
        choice = f"use one of {', '.join(self.names)}, or your own class (className)"
        if self.is_missing(name):
            raise InvalidInput(f"name: NNI's {self.kind} {name!r} is not available here; {choice}.")
        raise InvalidInput(f"name: cannot find {self.kind} {name!r}{self._nearest(name)}; {choice}.")

    def look_up(self, name: str) -> Algorithm | None:
        """The algorithm of a name or alias, or None."""
        return next((one for one in self.built_in if _is_called(one, name)), None) or self._installed(name)

    def of_nni_called(self, name: str) -> NniAlgorithm | None:
        """NNI's class of that name or alias; None if unknown, or the algorithm is ours."""
        return next((one for one in self.of_nni if _is_called(one, name)), None)

    def of_class(self, class_name: str) -> NniAlgorithm | None:
        """The algorithm that stands for this class of NNI's, or None."""
        return next((one for one in self.of_nni if one.class_name == class_name), None)

    def is_missing(self, name: str) -> bool:
        """Whether NNI has an algorithm of that name that this version lacks."""
        return name.lower() in (missing.lower() for missing in self.missing)

    def _installed(self, name: str) -> Algorithm | None:
        for point in plug_ins.entry_points(self.group):  # a built-in name never comes here
            if point.name.lower() == name.lower():
                return Algorithm(name=point.name, location=point.value, is_built_in=False)
        return None

    def _nearest(self, name: str) -> str:
        from difflib import get_close_matches

        known = {alias.lower(): one.name for one in self.built_in for alias in (one.name, *one.aliases)}
        nearest = get_close_matches(name.lower(), list(known), n=1)
        return f", did you mean {known[nearest[0]]}?" if nearest else ""


def _is_called(algorithm: Algorithm | NniAlgorithm, name: str) -> bool:
    return name.lower() in (known.lower() for known in (algorithm.name, *algorithm.aliases))
