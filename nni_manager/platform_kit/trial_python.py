"""The Python that trials find as `python3`: the program that determines it on a machine, and its answer.

For adapters whose machines can be queried before the first trial, if the section has a `trialPythonVersion`.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from nni_manager.domain.text import printable
from nni_manager.platform_kit import child_process
from nni_manager.platform_kit.contract import PreflightFinding, Severity
from trial_runner import protocol

_FIELD = "trialPythonVersion"
#: Seconds for a machine's answer, including the user's commands before a trial's command.
ANSWER_S = 6.0
_PROGRAM = Path(protocol.__file__).parent / "command_probe.py"
_MARK = "nni-manager-python"
_NONE = f"{_MARK} none"
#: The command that runs instead of a trial's.
QUESTION = (
    f'command -v python3 >/dev/null || {{ echo "{_NONE}"; exit; }}; exec python3 -c '
    f"""'import sys; print("{_MARK} %d.%d.%d" % sys.version_info[:3], sys.executable)'"""
)
_ANSWER = re.compile(rf"^{_MARK} (?P<minor>\d+\.\d+)(?P<patch>\.\d+) (?P<path>\S.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialPython:
    """The Python of trials on a machine."""

    #: Major and minor, ``3.11``; empty: there is none, or it is unknown.
    version: str = ""
    #: As text, ``Python 3.11.7 (/usr/bin/python3)``.
    words: str = ""
    #: Why it is unknown; empty: it is known, or there is none.
    doubt: str = ""

    def refusal(self, needed: str) -> str:
        """Why trials that need this version cannot run there; empty: they can, or this is unknown."""
        if self.doubt or self.version == needed:
            return ""
        found = f"trials would run in {self.words}" if self.version else "trials find no python3 on their PATH"
        return f"{found}, but need Python {needed} ({_FIELD})"

    def advice(self, needed: str, how: str) -> str:
        """What to do after a refusal. `how`: what puts a Python first there, with a placeholder for it."""
        also = f" from Python {self.version}, or" if self.version else ""
        return (
            f"{how.format(f'a Python {needed}')}; a program that sends its own function can run{also} with the"
            " function in a module, which every version reads"
        )

    def finding(self, subject: str, needed: str, how: str) -> PreflightFinding:
        """The preflight's finding."""
        if wrong := self.refusal(needed):
            fix = self.advice(needed, how)
            return PreflightFinding(severity=Severity.WRONG, subject=subject, sentence=wrong, fix=fix)
        if not self.doubt:
            sentence = f"trials run in {self.words}, as required by {_FIELD}"
            return PreflightFinding(severity=Severity.FINE, subject=subject, sentence=sentence)
        sentence = f"trials need Python {needed} ({_FIELD}), but the version on this machine is unknown: {self.doubt}"
        fix = "check it yourself; the first trial fails if another version has sent its function"
        return PreflightFinding(severity=Severity.WARNING, subject=subject, sentence=sentence, fix=fix)


def program(command: str, *, path: str = "", dropped: Collection[str] = ()) -> str:
    """The text of the program that a Python of 3.7 or newer runs, in the initial environment of trials.

    `command`: `QUESTION`, after the commands that precede every trial's command; `path`: folder that is prepended to
    trials' PATH; `dropped`: names of variables that they do not get.
    """
    settings = {"command": command, "path": path, "dropped": sorted(dropped), "limit_s": ANSWER_S}
    return f"SETTINGS = {settings!r}\n{_PROGRAM.read_text(encoding='utf-8')}"


async def ask_here(environment: Mapping[str, str]) -> TrialPython:
    """The Python of trials on this machine. `environment`: their initial one."""
    process = await child_process.start(
        sys.executable,
        "-I",
        "-c",
        program(QUESTION),
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        said, _ = await process.communicate()
        return answer_of(said)
    except ValueError as error:
        return TrialPython(doubt=str(error))
    finally:
        if process.returncode is None:
            process.kill()


def answer_of(line: bytes) -> TrialPython:
    """The output of the program. Raises ValueError if it is not a valid answer."""
    told = json.loads(line)
    if not isinstance(told, dict) or not isinstance(told.get("output"), str):
        raise ValueError("its output is not a valid answer")
    output, code = printable(told["output"]), told.get("exit_code")
    if found := _ANSWER.search(output):
        words = f"Python {found['minor']}{found['patch']} ({found['path'].strip()})"
        return TrialPython(version=found["minor"], words=words)
    if _NONE in output.splitlines():
        return TrialPython()
    ended = f"no answer within {ANSWER_S:.0f} s" if code is None else f"the command ended with exit code {code}"
    return TrialPython(doubt=ended)
