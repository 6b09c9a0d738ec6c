"""Runs a command like a trial of this machine, before there are trials, and prints its output.

The text is sent to the machine and run by its own Python with `SETTINGS` set, so it imports nothing of ours. Settings:
`command`, `path` (a folder prepended to PATH; empty: none), `dropped` (names of variables that trials do not get) and
`limit_s`. It prints one line of JSON, ``{"exit_code", "output"}``; the code is null if the command took too long.
"""

import json
import os
import signal
import subprocess
from typing import Any, Dict, Optional

SETTINGS: Dict[str, Any] = globals().get("SETTINGS", {})  # the manager prepends the assignment to this text
_MOST_BYTES = 16384
_SHELL = next((path for path in ("/bin/bash", "/usr/bin/bash") if os.access(path, os.X_OK)), "/bin/sh")


def main() -> None:
    process = subprocess.Popen(
        [_SHELL, "-c", SETTINGS["command"]],
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=SETTINGS["limit_s"])
        code: Optional[int] = process.returncode
    except subprocess.TimeoutExpired:
        output, code = b"", None
    finally:
        end(process)
    print(json.dumps({"exit_code": code, "output": output[-_MOST_BYTES:].decode("utf-8", "replace")}), flush=True)


def environment() -> Dict[str, str]:
    """The environment of a trial, as far as it determines which program is found."""
    kept = {name: value for name, value in os.environ.items() if name not in SETTINGS["dropped"]}
    if SETTINGS["path"]:
        kept["PATH"] = "{}:{}".format(os.path.expanduser(SETTINGS["path"]), kept.get("PATH", "/usr/bin:/bin"))
    return kept


def end(process: "subprocess.Popen[bytes]") -> None:
    """Ends everything that the command has started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except OSError:
        pass
    process.wait()


if SETTINGS:
    main()
