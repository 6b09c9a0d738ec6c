"""The functions that trial code calls: parameters, results, ids, `is_ending`. Outside an experiment they work locally
and print."""

from __future__ import annotations

import os

import nni_outbox

TYPE_CHECKING = False  # `typing` is slow to import and only checkers need it
if TYPE_CHECKING:
    from typing import Any, Dict

#: The environment as the program found it: it may change its own.
_platform = os.environ.get("NNI_PLATFORM")
_experiment_id = os.environ.get("NNI_EXP_ID") or "STANDALONE"
_trial_id = os.environ.get("NNI_TRIAL_JOB_ID") or "STANDALONE"
_sequence_id = int(os.environ.get("NNI_TRIAL_SEQ_ID") or 0)
nni_outbox.settle()
#: The file that announces the job's end; empty outside an experiment.
_ending_file = os.environ.get("NNI_SYS_DIR") and os.path.abspath(os.path.join(os.environ["NNI_SYS_DIR"], "ending"))

_record: Dict[str, Any] | None = None
_printed = 0


def get_next_parameter() -> Any:
    """The trial's parameters, usually a mapping of name to value; the same object at every call.

    Outside an experiment: an empty mapping, and a RuntimeWarning. Raises RuntimeError if the trial's record is gone.
    """
    global _record
    if _record is None:
        _record = _standalone_record() if _standalone() else _loaded_record()
    return _record["parameters"]


#: The older name.
get_next_parameters = get_next_parameter


def get_current_parameter(tag: str | None = None) -> Any:
    """The result of `get_next_parameter`, or its entry `tag`; None before that was called."""
    if _record is None:
        return None
    return _record["parameters"] if tag is None else _record["parameters"][tag]


def report_intermediate_result(metric: object, step: int | None = None) -> None:
    """Reports an intermediate result, such as an epoch's accuracy: a number, or a mapping with the number in
    ``default``.

    `step`: its place in the learning curve, from 0, such as the epoch; by default results are counted. A trial that
    continues from a checkpoint continues with its step: NNI's own SDK has no such argument.

    Returns when the result is safe in the trial's folder, whether or not the manager runs. Raises TypeError for what
    is not JSON, ValueError above a megabyte and for a step below 0, OSError when the folder stayed unwritable for ten
    minutes.
    """
    _report(nni_outbox.INTERMEDIATE, metric, step)


def report_final_result(metric: object) -> None:
    """Reports the trial's result, which the tuner learns from; otherwise as `report_intermediate_result`."""
    _report(nni_outbox.FINAL, metric)


def get_experiment_id() -> str:
    """The experiment's id; ``STANDALONE`` outside one."""
    return _experiment_id


def get_trial_id() -> str:
    """The trial's id; ``STANDALONE`` outside an experiment."""
    return _trial_id


def get_sequence_id() -> int:
    """The trial's number in its experiment, from 0; 0 outside an experiment."""
    return _sequence_id


def is_ending() -> bool:
    """Whether the platform has announced that it will soon take the job away: save a checkpoint now.

    One look at a file, cheap enough for every step; always False outside an experiment. NNI's own SDK has no such
    function: look for the file ``ending`` in ``$NNI_SYS_DIR``.
    """
    return bool(_ending_file) and os.path.exists(_ending_file)


def _report(kind: str, metric: object, step: int | None = None) -> None:
    if _standalone():
        _print(kind, nni_outbox.json_text(metric), nni_outbox.checked_step(step))
    else:
        nni_outbox.report(kind, metric, step)


def _standalone() -> bool:
    return _platform in (None, "", "unittest")


def _loaded_record() -> Any:
    import json

    return json.loads(nni_outbox.read_record())


def _standalone_record() -> Dict[str, Any]:
    import warnings

    warnings.warn(
        "No experiment runs this program, so its parameters are empty and its results are only printed. "
        "Start an experiment with `nnictl create --config <file>`.",
        RuntimeWarning,
        stacklevel=3,
    )
    return {"parameters": {}}


def _print(kind: str, text: str, step: int | None) -> None:
    global _printed
    from nni.runtime.log import say

    if kind == nni_outbox.FINAL:
        say("Final result: {}".format(text))
        return
    say("Intermediate result {}: {}".format(_printed if step is None else step, text))
    _printed += 1
