"""The child process that hosts our own tuner and assessor: ``python -m nni_manager.scheduler.tuning.process``.

Frame and verbs come from `trial_runner.tuner_host`, which also has the process for users' classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from nni_manager.domain.algorithm import AlgorithmSpec
from nni_manager.domain.errors import NniManagerError
from nni_manager.domain.space.parameters import ParameterSource
from nni_manager.domain.trial_status import TrialStatus
from nni_manager.tuners import registry as tuners
from nni_manager.tuners.contract import Pending, Result, Tuner
from trial_runner.tuner_host.process import serve
from trial_runner.tuner_host.verbs import HostedTuner, Message, Verbs

if TYPE_CHECKING:
    from trial_runner.tuner_host.verbs import HostedAssessor


def main() -> None:
    """Serves until standard input ends."""
    serve(own_verbs())


def own_verbs() -> Verbs:
    return Verbs(_make_tuner, _make_assessor, (NniManagerError,))


class OwnTuner(HostedTuner):
    """Adapts one of our tuners to the verbs, which pass trials as records."""

    def __init__(self, tuner: Tuner) -> None:
        self._tuner = tuner
        self.proposes_ahead = tuner.proposes_ahead

    @property
    def withdraws(self) -> bool:
        return self._tuner.withdraws

    def load_checkpoint(self) -> None:
        self._tuner.load_checkpoint()

    def update_search_space(self, search_space: Any) -> None:
        self._tuner.update_search_space(search_space)

    def restore(self, history: list[Message], unfinished: list[Message], imported: list[list[Message]]) -> None:
        past, running = map(_result, history), [Pending(**_assignment(item)) for item in unfinished]
        self._tuner.restore(history=list(past), unfinished=running, imported=imported)

    def propose(self, parameter_ids: list[int]) -> tuple[Sequence[tuple[int, Any]], bool]:
        batch = self._tuner.propose_many(parameter_ids)
        return batch.proposals, batch.exhausted

    def continues(self, parameter_id: int) -> int | None:
        return self._tuner.continues(parameter_id)

    def learn(self, result: Message) -> None:
        self._tuner.learn(_result(result))

    def adopt(self, trial: Message) -> None:
        self._tuner.adopt(Pending(**_assignment(trial)))

    def withdraw(self, parameter_ids: list[int]) -> None:
        self._tuner.withdraw(parameter_ids)

    def import_data(self, data: list[Message]) -> None:
        self._tuner.import_data(data)

    def state(self) -> Message:
        return self._tuner.state()

    def close(self) -> None:
        self._tuner.close()


def _make_tuner(spec: Message) -> HostedTuner:
    expected = spec.get("expected")
    others = ("expected", "multi_thread")
    tuner = tuners.create(AlgorithmSpec(**{key: value for key, value in spec.items() if key not in others}))
    if expected is not None:
        tuner.expect(**expected)
    return OwnTuner(tuner)


def _make_assessor(spec: Message) -> HostedAssessor:
    """`direction`: the experiment's, for an assessor that uses one but has none in its arguments."""
    from nni_manager.assessors import registry as assessors

    given = AlgorithmSpec(**{name: value for name, value in spec.items() if name != "direction"})
    made = assessors.create(given, optimize_mode=spec.get("direction"))
    return cast("HostedAssessor", made)  # the same methods


def _result(item: Message) -> Result:
    return Result(**_assignment(item), value=item["value"], status=TrialStatus(item["status"]))


def _assignment(item: Message) -> dict[str, Any]:
    """The fields of every message about a trial: id, parameters and their source."""
    expected = {name: item[name] for name in ("parameter_id", "parameters", "trial_id")}
    return {**expected, "source": ParameterSource(item["source"])}


if __name__ == "__main__":
    main()
