"""The replica that this process is: all of one role are started alike, and only their operator tells them apart.

The first of the role that reports does so, in the attempt's own folder; every other has a folder below it.
"""

import json
import os
import re
import socket
from typing import Mapping, MutableMapping

from trial_runner import protocol

#: Of operators that number the processes of a role: PyTorchJob, FrameworkController, AdaptDL.
_NUMBERS = ("FC_TASK_INDEX", "ADAPTDL_REPLICA_RANK", "RANK")
_DEFAULT_FOLDER = "nni"


def settle(environment: MutableMapping[str, str]) -> None:
    """Changes what says who reports, and where this process works. Quiet where nothing says that there are several."""
    role = environment.get(protocol.ENV_ROLE)
    if not role:
        return
    index = _index(environment, role)
    if environment.get(protocol.ENV_REPORTER) != "0" and index == 0:
        return
    environment[protocol.ENV_REPORTER] = "0"
    for name in (protocol.ENV_SYSTEM_DIR, protocol.ENV_OUTPUT_DIR):
        folder = environment.get(name) or (_DEFAULT_FOLDER if name == protocol.ENV_SYSTEM_DIR else "")
        if folder:
            environment[name] = os.path.join(folder, protocol.REPLICAS_FOLDER, "{}-{}".format(role, index))


def _index(environment: Mapping[str, str], role: str) -> int:
    """Its number within the role; 0 where nothing tells."""
    try:
        task = json.loads(environment.get("TF_CONFIG") or "{}").get("task", {})
        if str(task.get("type", "")).lower() == role.lower():
            return int(task["index"])
    except (ValueError, TypeError, KeyError, AttributeError):
        pass  # the user's own, perhaps
    for variable in _NUMBERS:
        if environment.get(variable, "").isdigit():
            return int(environment[variable])
    found = re.search(r"-{}-(\d+)$".format(re.escape(role.lower())), socket.gethostname())
    return int(found.group(1)) if found else 0
