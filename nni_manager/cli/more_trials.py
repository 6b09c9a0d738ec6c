"""Advice on how to make an experiment run more trials. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nni_manager.cli.session import same_daemon

#: What the reason names → the `nnictl update` command that changes it.
_COMMANDS = {
    "maxTrialNumber": "trialnum {} -v NUMBER", "maxExperimentDuration": "duration {} -v DURATION",
    "the tuner": "searchspace {} -f FILE",
}  # fmt: skip


def advice(state: Mapping[str, Any]) -> str:
    """Why an experiment makes no more trials, with a command that changes each reason; empty while it makes more."""
    reason, id_ = state.get("noMoreTrials") or "", state["id"]
    commands = [
        f"`nnictl update {text.format(id_)}{same_daemon()}`" for what, text in _COMMANDS.items() if what in reason
    ]
    return f"it makes no more trials: {reason}; for more, {' and '.join(commands)}" if reason else ""
