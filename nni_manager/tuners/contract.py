"""The contract of tuners.

One instance serves one experiment, is called by one thread, one call at a time, and is given a search space first. It
is never asked twice for the same parameter id. It may assume nothing about when results come: they may be late, out of
order, of trials it did not propose, or missing.

A tuner keeps no state of its own on disk. After a restart `restore` is called once, right after the first search
space, with everything that was recorded, and must bring the tuner into the state it had.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nni_manager.domain.errors import InvalidInput
from nni_manager.domain.objectives import Goals
from nni_manager.domain.space.parameters import ParameterSource
from nni_manager.domain.trial_status import TrialStatus

#: Results of earlier experiments: objects with ``parameter`` and ``value``.
Data = Sequence[Mapping[str, object]]


class NoMoreProposals(Exception):
    """An error: there is nothing to propose, for ever when `permanently`, else until something has been learned."""

    def __init__(self, *, permanently: bool) -> None:
        super().__init__("for ever" if permanently else "at the moment")
        self.permanently = permanently


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """A trial that an earlier process proposed, or a user gave, and that has not ended."""

    #: None: the user gave the parameters.
    parameter_id: int | None
    parameters: object
    trial_id: str
    source: ParameterSource = ParameterSource.ALGORITHM


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A trial that has ended."""

    #: None: the user gave the parameters.
    parameter_id: int | None
    parameters: object
    #: As reported: a number, an object with ``default``, anything else a trial may send; None without a final result.
    value: object
    status: TrialStatus
    trial_id: str
    source: ParameterSource = ParameterSource.ALGORITHM


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Answer to a request for several proposals: for the first ids, as many as there was something for.

    In place of an id there may be one that was asked for earlier and had nothing then.
    """

    proposals: Sequence[tuple[int, object]]
    #: Whether the tuner is exhausted for ever.
    exhausted: bool = False


class Tuner(ABC):
    """Proposes parameters and learns from results."""

    #: Whether proposals may be requested ahead of the results that could improve them.
    proposes_ahead: bool = False

    def pursue(self, goals: Goals) -> None:
        """Told before all other methods, of an experiment with objectives. Raises InvalidInput by default."""
        raise InvalidInput(f"objectives: {type(self).__name__} goes by one number")

    @abstractmethod
    def update_search_space(self, search_space: object) -> None:
        """The first or another search space. Raises InvalidInput when it cannot be used, and keeps the one before."""

    @abstractmethod
    def propose(self, parameter_id: int) -> object:
        """Parameters for a new trial, as JSON can hold them. Raises NoMoreProposals."""

    @abstractmethod
    def learn(self, result: Result) -> None:
        """Takes the result of an ended trial; called once per trial, also for trials of other origin."""

    @abstractmethod
    def import_data(self, data: Data) -> None:
        """Learns results of earlier experiments."""

    @abstractmethod
    def state(self) -> dict[str, object]:
        """A few figures for display."""

    def propose_many(self, parameter_ids: Sequence[int]) -> Batch:
        """Parameters for several trials. Never raises NoMoreProposals."""
        proposals: list[tuple[int, object]] = []
        for parameter_id in parameter_ids:
            try:
                proposals.append((parameter_id, self.propose(parameter_id)))
            except NoMoreProposals as end:
                return Batch(proposals=proposals, exhausted=end.permanently)
        return Batch(proposals=proposals)

    def expect(self, *, trials: int | None, concurrency: int) -> None:  # noqa: B027 - nothing to do is a fine answer
        """Told before the first search space: how many trials the experiment may have in all, None: any number, and how
        many run at a time. A hint: both may be changed while the experiment runs, and more results may be imported.
        """

    def continues(self, parameter_id: int) -> int | None:
        """The parameter id of an earlier proposal whose configuration this one, proposed just now, continues.

        Its trial begins with that one's checkpoint. None: it continues none.
        """
        return None

    def adopt(self, pending: Pending) -> None:  # noqa: B027 - nothing to do is a fine answer
        """Takes over a running trial that an earlier process of this tuner proposed, or a user gave."""

    @property
    def withdraws(self) -> bool:
        """Whether unused proposals may be withdrawn at any time, as others take their place."""
        return False

    def withdraw(self, parameter_ids: Sequence[int]) -> None:  # noqa: B027 - nothing to do is a fine answer
        """Takes back proposals that become no trials, as the search space or what is known has changed."""

    def load_checkpoint(self) -> None:  # noqa: B027 - nothing to do is a fine answer
        """Reads what an earlier process of a resumed experiment saved. Called before all other methods."""

    def close(self) -> None:  # noqa: B027 - nothing to do is a fine answer
        """Saves state before an orderly end of the process; not called when it is killed."""

    def restore(self, *, history: Sequence[Result], unfinished: Sequence[Pending], imported: Sequence[Data]) -> None:
        """Restores the state before a restart. `history`: in order of ends; `unfinished`: in order of creation."""
        for data in imported:
            self.import_data(data)
        for result in history:
            self.learn(result)
        for pending in unfinished:
            self.adopt(pending)
