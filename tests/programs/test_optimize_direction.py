"""`optimize`: its direction reaches the tuner, unless the tuner's section or the objectives state another one."""

from __future__ import annotations

import math
import re
from typing import Any, Literal

import pytest

from nni_manager.domain.errors import ConfigInvalid, InvalidInput
from nni_manager.programs import optimize

pytestmark = pytest.mark.unit

MODE = "optimize_mode"


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The fields of each experiment that is made; none is started."""
    made: list[dict[str, Any]] = []

    class Unstarted:
        def __init__(self, fields: dict[str, Any], **_: object) -> None:
            made.append(fields)

        def start(self, **_: object) -> None: ...

        def wait(self, **_: object) -> None: ...

        def stop(self) -> None: ...

    monkeypatch.setattr(optimize, "Experiment", Unstarted)
    return made


@pytest.mark.parametrize(
    ("tuner", "direction", "expected"),
    [
        (None, "maximize", {"name": "Auto", "class_args": {MODE: "maximize"}}),
        ({"name": "Random"}, "minimize", {"name": "Random", "class_args": {MODE: "minimize"}}),
        (
            {"name": "TPE", "classArgs": {"seed": 1}},
            "maximize",
            {"name": "TPE", "classArgs": {"seed": 1, MODE: "maximize"}},
        ),
        (
            {"name": "TPE", "classArgs": {MODE: "maximize"}},
            "minimize",
            {"name": "TPE", "classArgs": {MODE: "maximize"}},
        ),
        ({"class_name": "mine.Mine"}, "maximize", {"class_name": "mine.Mine"}),
    ],
)
def test_direction_is_stated_for_built_in_tuners(
    sent: list[dict[str, Any]], tuner: Any, direction: Literal["minimize", "maximize"], expected: Any
) -> None:
    optimize.optimize(math.sin, {}, trials=1, tuner=tuner, direction=direction)
    assert sent[0]["tuner"] == expected


def test_unknown_direction_is_refused(sent: list[dict[str, Any]]) -> None:
    with pytest.raises(InvalidInput, match=r"^direction: must be 'minimize' or 'maximize', not 'min'"):
        optimize.optimize(math.sin, {}, trials=1, direction="min")  # type: ignore[arg-type]
    assert not sent


@pytest.mark.parametrize(
    ("field", "argument"),
    [
        ("max_trial_number", "trials"),
        ("trial_concurrency", "concurrency"),
        ("training_service.platform", "platform"),
        ("search_space.lr", "search_space.lr"),
    ],
)
def test_problem_has_the_name_of_the_argument(field: str, argument: str) -> None:
    with pytest.raises(ConfigInvalid, match=f"^{re.escape(argument)}: is wrong"), optimize._in_arguments("local"):
        raise ConfigInvalid.of("is wrong", field=field)


def test_objectives_state_the_directions(sent: list[dict[str, Any]]) -> None:
    optimize.optimize(math.sin, {}, trials=1, objectives={"loss": "minimize"})
    assert sent[0]["tuner"] == {"name": "TPE"}
