"""What the command's environment holds: the runner's own, less what is the runner's business, plus the trial's."""

import os
from typing import Dict, Mapping

from trial_runner import protocol
from trial_runner.settings import Settings

_RUNNERS_OWN = (
    protocol.ENV_TOKEN,
    protocol.ENV_MANAGER_URL,
    protocol.ENV_MANAGER_CA,
    protocol.ENV_COMMAND,
    protocol.ENV_GRACE_S,
    protocol.ENV_REPORTER,
    protocol.ENV_CHANNEL,
    protocol.ENV_CODE,
    protocol.ENV_DRAIN_S,
)


def of_command(environment: Mapping[str, str], settings: Settings, stand_in: str) -> Dict[str, str]:
    """The stand-in comes last on the path: a real `nni` is before it."""
    kept = {name: value for name, value in environment.items() if name not in _RUNNERS_OWN}
    kept.update(
        {
            protocol.ENV_SYSTEM_DIR: settings.system_dir,
            protocol.ENV_OUTPUT_DIR: settings.output_dir,
            protocol.ENV_CODE_DIR: settings.code_dir,
            protocol.ENV_OUTBOX: os.path.join(settings.system_dir, protocol.MAIN_OUTBOX),
            protocol.ENV_COMMAND_CHANNEL: protocol.COMMAND_CHANNEL,
            protocol.ENV_JOB: "{}:runner:{}".format(settings.job_name, os.urandom(6).hex()),
            "PYTHONPATH": os.pathsep.join(filter(None, (environment.get("PYTHONPATH"), stand_in))),
        }
    )
    return kept
