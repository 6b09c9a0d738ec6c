"""What a state of an experiment means to somebody who waits for its end. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass

from nni_manager.cli.output import direction, number
from nni_manager.cli.progress import State
from nni_manager.domain.experiment import ExperimentStatus, HoldCode
from nni_manager.domain.trial import TrialStatus

#: These end by themselves, so waiting goes on.
PASSING_HOLDS = frozenset({HoldCode.TUNER_SILENT, HoldCode.PLATFORM_UNAVAILABLE, HoldCode.STORE_UNAVAILABLE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Why waiting is over."""

    #: Nothing is left to do: the experiment may be closed.
    is_done: bool
    #: It went as it should.
    is_good: bool
    text: str


def judge(state: State) -> Verdict | None:
    """None: go on waiting."""
    status, id_ = state["status"], state["id"]
    if status == ExperimentStatus.DONE:
        return Verdict(is_done=True, is_good=state["best"] is not None, text=_result(state))
    if status == ExperimentStatus.ERROR:
        return Verdict(is_done=False, is_good=False, text=_trouble(state, "stopped on an error"))
    if status in (ExperimentStatus.STOPPING, ExperimentStatus.STOPPED):
        text = f"Experiment {id_} was stopped before it was done; continue it with `nnictl resume {id_}`."
        return Verdict(is_done=False, is_good=False, text=text)
    if state["hold"] and state["hold"]["code"] not in PASSING_HOLDS:
        return Verdict(is_done=False, is_good=False, text=_trouble(state, "is on hold"))
    return None


def passing_hold(state: State) -> str:
    """Why nothing new starts at the moment; empty when something does."""
    hold = state["hold"]
    return hold["sentence"] if hold and hold["code"] in PASSING_HOLDS else ""


def _any_success(state: State) -> bool:
    return bool(state["counts"].get(TrialStatus.SUCCEEDED))


def _result(state: State) -> str:
    id_, best = state["id"], state["best"]
    why = f"done, as {state['noMoreTrials']}" if state.get("noMoreTrials") else "done"
    if best:
        parameters = json.dumps(best["parameters"], ensure_ascii=False, indent=2)
        value, which = number(best["value"]) or "infinite", direction(state.get("optimizeMode"))
        return f"Experiment {id_} is {why}. Best{which} result {value}, trial {best['trialId']}:\n{parameters}"
    if _any_success(state):
        return (
            f"Experiment {id_} is {why}, but no trial that succeeded has a final result that is a number;"
            f" `nnictl trial ls {id_}` says why."
        )
    return f"Experiment {id_} is {why}, but no trial succeeded; `nnictl trial ls {id_}` says why."


def _trouble(state: State, what: str) -> str:
    id_, hold = state["id"], state["hold"] or {}
    sentences = [hold["sentence"]] if hold else []
    sentences += [sentence for sentence in state["errors"] if sentence not in sentences]
    lines = [f"Experiment {id_} {what}: {'; '.join(sentences) or 'see its log'}", hold.get("details", "").rstrip()]
    lines.append(f"Continue it with `nnictl resume {id_}`, or end it with `nnictl stop {id_}`.")
    return "\n".join(line for line in lines if line)
