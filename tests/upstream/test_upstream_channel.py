"""Trial code with the real nni 3.0 reports into the outbox, through the SDK's own hook for channels."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from trial_runner import protocol

if TYPE_CHECKING:
    from conftest import UpstreamTrial

pytestmark = [pytest.mark.upstream, pytest.mark.timeout(1200)]  # the first test of a session may install nni

DIGITS = Path(__file__).parents[2] / "configs" / "digits"


def test_parameters_and_results_work_without_a_manager(upstream_trial: UpstreamTrial) -> None:
    code = """if True:
        import nni, sys
        assert nni.__version__ == "3.0"
        assert nni.get_next_parameter() == {"lr": 0.1}
        nni.report_intermediate_result(0.5)
        nni.report_intermediate_result({"default": 0.25, "note": "Größe"})
        nni.report_final_result(1)
        ids = nni.get_experiment_id(), nni.get_trial_id(), nni.get_sequence_id()
        print(*ids, file=sys.stderr)
    """
    assert upstream_trial.run("-c", code).stderr == "exp1 abcde 3\n"
    (lines,) = upstream_trial.outboxes()
    assert [json.loads(line) for line in lines] == [
        {"type": "intermediate", "value": 0.5},
        {"type": "intermediate", "value": {"default": 0.25, "note": "Größe"}},
        {"type": "final", "value": 1},
    ]
    assert not (upstream_trial.folder / protocol.METRICS_FILE).exists()


def test_second_request_gets_the_same_parameters(upstream_trial: UpstreamTrial) -> None:
    code = """if True:
        import nni
        assert nni.get_next_parameter() == nni.get_next_parameter() == {"lr": 0.1}
        nni.report_final_result(1)
    """
    upstream_trial.run("-c", code)
    assert upstream_trial.outboxes() == [['{"type":"final","value":1}']]


def test_parameters_need_not_be_a_mapping(upstream_trial: UpstreamTrial) -> None:
    upstream_trial.give([1, "two"])
    upstream_trial.run("-c", "import nni; assert nni.get_next_parameter() == [1, 'two']; nni.report_final_result(1)")
    assert upstream_trial.outboxes() == [['{"type":"final","value":1}']]


def test_values_of_every_kind(upstream_trial: UpstreamTrial) -> None:
    code = """if True:
        import fractions, nni, numpy
        nni.get_next_parameter()
        for value in [float("nan"), -numpy.inf, numpy.float32(0.25), numpy.int64(7), numpy.bool_(True),
                      {"default": numpy.float64(0.5), "list": (1, None)}, numpy.array([[1, 2]]), {1},
                      fractions.Fraction(1, 2)]:
            nni.report_intermediate_result(value)
    """
    assert upstream_trial.run("-W", "error::UserWarning", "-c", code).stderr == ""
    (lines,) = upstream_trial.outboxes()
    values = [json.loads(line)["value"] for line in lines]
    assert math.isnan(values[0])
    assert values[1:] == [
        -math.inf,
        0.25,
        7,
        True,
        {"default": 0.5, "list": [1, None]},
        {"__ndarray__": [[1, 2]], "dtype": "int64", "shape": [1, 2]},
        {"__set__": [1]},
        {"__fraction__": True, "numerator": 1, "denominator": 2},  # from the SDK's own serializer
    ]


def test_arrays_are_written_as_the_sdk_reads_them(upstream_trial: UpstreamTrial) -> None:
    code = """if True:
        import json, nni, nni_outbox, numpy
        array = numpy.arange(6, dtype="float32").reshape(2, 3)
        read = nni.load(nni_outbox.json_text(array))
        assert read.dtype == array.dtype and (read == array).all()
        assert json.loads(nni.dump(array)).items() >= json.loads(nni_outbox.json_text(array)).items()
    """
    upstream_trial.run("-c", code)


def test_tagged_values_are_written_as_the_sdk_writes_them(upstream_trial: UpstreamTrial) -> None:
    code = """if True:
        import datetime, decimal, json, nni, nni_outbox, pathlib
        times = datetime.datetime(2026, 11, 2, 0, 5), datetime.date(2026, 11, 2), datetime.timedelta(1, 2, 3)
        for value in [{3, 1, 2}, 1 - 2j, decimal.Decimal("0.10"), pathlib.Path("/a/b"), *times]:
            assert nni_outbox.json_text(value) == nni.dump(value), (nni_outbox.json_text(value), nni.dump(value))
    """
    upstream_trial.run("-c", code)


def test_program_may_clear_its_environment(upstream_trial: UpstreamTrial) -> None:
    code = "import nni, os; nni.get_next_parameter(); os.environ.clear(); nni.report_final_result(1)"
    upstream_trial.run("-c", code)
    assert upstream_trial.outboxes() == [['{"type":"final","value":1}']]


def test_burst_arrives_whole_and_in_order(upstream_trial: UpstreamTrial) -> None:
    code = """if True:
        import nni
        nni.get_next_parameter()
        for step in range(100_000):
            nni.report_intermediate_result(step / 2)
    """
    upstream_trial.run("-c", code)
    (lines,) = upstream_trial.outboxes()
    assert [json.loads(line)["value"] for line in lines] == [step / 2 for step in range(100_000)]


def test_processes_of_a_trial_have_an_outbox_each(upstream_trial: UpstreamTrial) -> None:
    code = """if True:
        import nni, os
        nni.get_next_parameter()
        nni.report_intermediate_result(0)
        child = os.fork()
        nni.report_intermediate_result(1 if child else 2)
        if child: os.waitpid(child, 0)
    """
    upstream_trial.run("-c", code)
    values = [[json.loads(line)["value"] for line in lines] for lines in upstream_trial.outboxes()]
    assert sorted(values) == [[0, 1], [2]]


def test_lost_parameter_file_is_an_error_that_names_it(upstream_trial: UpstreamTrial) -> None:
    (upstream_trial.folder / protocol.PARAMETER_FILE).unlink()
    code = """if True:
        import nni, sys
        try: nni.get_next_parameter()
        except RuntimeError as error: print(error, file=sys.stderr)
    """
    stderr = upstream_trial.run("-c", code).stderr
    assert f"cannot be read from {upstream_trial.folder / protocol.PARAMETER_FILE}" in stderr


def test_example_trial_runs_on_the_real_nni(upstream_trial: UpstreamTrial) -> None:
    upstream_trial.give({"learning_rate": 0.01, "batch_size": 64})
    upstream_trial.run(str(DIGITS / "trial.py"))
    (lines,) = upstream_trial.outboxes()
    final = json.loads(lines[-1])
    assert len(lines) == 16 and final["type"] == "final" and 0.9 < final["value"] <= 1
