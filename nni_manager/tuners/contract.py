"""The contract of tuners.

One instance serves one experiment. One thread makes one call at a time, and sets a search space first. No parameter id
is requested twice. Results may be late, out of order, of trials that the tuner did not propose, or missing.

A tuner stores no state on disk. After a restart `restore` is called once, right after the first search space, with all
recorded data, and must restore the tuner's state.
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
    """The tuner has nothing to propose: forever if `permanently`, otherwise until something has been learned."""

    def __init__(self, *, permanently: bool) -> None:
        super().__init__("for ever" if permanently else "at the moment")
        self.permanently = permanently


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """A trial that an earlier process proposed, or a user added, and that has not ended."""

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
    #: As reported: a number, an object with ``default``, or anything else; None without a final result.
    value: object
    status: TrialStatus
    trial_id: str
    source: ParameterSource = ParameterSource.ALGORITHM


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Answer to a request for several proposals: for the first ids, as many as available.

    An id may be replaced by an earlier one for which nothing was available.
    """

    proposals: Sequence[tuple[int, object]]
    #: Whether the tuner is permanently exhausted.
    exhausted: bool = False


class Tuner(ABC):
    """Proposes parameters and learns from results."""

    #: Whether proposals may be requested ahead of the results that could improve them.
    proposes_ahead: bool = False

    def pursue(self, goals: Goals) -> None:
        """Sets the objectives, before all other methods. By default raises InvalidInput."""
        raise InvalidInput(f"objectives: {type(self).__name__} supports a single number only")

    @abstractmethod
    def update_search_space(self, search_space: object) -> None:
        """Sets the first or another search space. Raises InvalidInput for an unusable one, and keeps the previous
        one."""

    @abstractmethod
    def propose(self, parameter_id: int) -> object:
        """Parameters for a new trial, as JSON values. Raises NoMoreProposals."""

    @abstractmethod
    def learn(self, result: Result) -> None:
        """Learns the result of an ended trial; called once per trial, also for trials of other origin."""

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
        """Sets, before the first search space, the maximum number of trials (None: unlimited) and of concurrent ones. A
        hint: both may change while the experiment runs, and more results may be imported.
        """

    def continues(self, parameter_id: int) -> int | None:
        """The parameter id of an earlier proposal whose configuration this one, proposed just now, continues.

        Its trial begins with that one's checkpoint. None: it continues none.
        """
        return None

    def adopt(self, pending: Pending) -> None:  # noqa: B027 - nothing to do is a fine answer
        """Adds a running trial that an earlier process of this tuner proposed, or a user added."""

    @property
    def withdraws(self) -> bool:
        """Whether unused proposals may be withdrawn at any time, as others replace them."""
        return False

    def withdraw(self, parameter_ids: Sequence[int]) -> None:  # noqa: B027 - nothing to do is a fine answer
        """Withdraws proposals that become no trials, as the search space or the known results have changed."""

    def load_checkpoint(self) -> None:  # noqa: B027 - nothing to do is a fine answer
        """Reads the state that an earlier process of a resumed experiment saved. Called before all other methods."""

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
