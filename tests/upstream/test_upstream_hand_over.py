"""The stand-in package precedes the real nni on the path, and gives way to it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import UpstreamTrial

pytestmark = [pytest.mark.upstream, pytest.mark.timeout(1200)]  # the first test of a session may install nni

DIGITS = Path(__file__).parents[2] / "configs" / "digits"


def test_real_package_replaces_the_stand_in(upstream_trial: UpstreamTrial, nni3: Path) -> None:
    code = """if True:
        import nni, nni.tuner, nni.experiment, sys
        from nni.runtime.trial_command_channel import TrialCommandChannel
        stand_in = [name for name in ("nni.absent", ) if name in sys.modules]
        print(nni.__version__, sys.modules["nni"] is nni, stand_in, file=sys.stderr)
        for module in (nni, nni.tuner, nni.experiment): print(module.__file__, file=sys.stderr)
    """
    first, *files = upstream_trial.run("-c", code).stderr.splitlines()
    assert first == "3.0 True []"
    assert len(files) == 3 and all(Path(file).is_relative_to(nni3.parents[1]) for file in files)


def test_submodule_may_be_imported_first(upstream_trial: UpstreamTrial) -> None:
    code = "from nni.utils import json2space; from nni import trace; import nni; assert nni.__version__ == '3.0'"
    upstream_trial.run("-c", code)


def test_upstream_tuner_is_a_base_for_user_tuners(upstream_trial: UpstreamTrial) -> None:
    code = """if True:
        import nni
        from nni.algorithms.hpo.random_tuner import RandomTuner
        class Lucky(RandomTuner):
            def generate_parameters(self, *args, **kwargs):
                return dict(super().generate_parameters(*args, **kwargs), lucky=True)
        assert isinstance(Lucky(), nni.tuner.Tuner)
        tuner = Lucky(seed=0)
        tuner.update_search_space({"x": {"_type": "uniform", "_value": [2, 3]}})
        first, second = tuner.generate_multiple_parameters([0, 1])
        assert 2 <= first["x"] <= 3 and first["lucky"] and first != second
        tuner.receive_trial_result(0, first, 0.5)
    """
    upstream_trial.run("-c", code)


def test_example_tuner_extends_the_real_class(upstream_trial: UpstreamTrial) -> None:
    code = f"""if True:
        import sys
        sys.path.insert(0, {str(DIGITS)!r})
        import nni, local_search
        tuner = local_search.LocalSearchTuner(seed=0)
        assert isinstance(tuner, nni.tuner.Tuner) and nni.__version__ == "3.0"
        tuner.update_search_space({{"x": {{"_type": "uniform", "_value": [2, 3]}}}})
        (proposal,) = tuner.generate_multiple_parameters([0])
        assert 2 <= proposal["x"] <= 3
    """
    upstream_trial.run("-c", code)
