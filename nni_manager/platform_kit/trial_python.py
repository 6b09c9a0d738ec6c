"""The Python that trials find as `python3`: the program that asks a machine for it, and what its answer means.

For adapters whose machines can be asked before the first trial, where the section has a `trialPythonVersion`.
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
#: Seconds that a machine has for its answer, with what a user has put in front of trials' commands.
ANSWER_S = 6.0
_PROGRAM = Path(protocol.__file__).parent / "command_probe.py"
_MARK = "nni-manager-python"
_NONE = f"{_MARK} none"
#: The command that is run in place of a trial's.
QUESTION = (
    f'command -v python3 >/dev/null || {{ echo "{_NONE}"; exit; }}; exec python3 -c '
    f"""'import sys; print("{_MARK} %d.%d.%d" % sys.version_info[:3], sys.executable)'"""
)
_ANSWER = re.compile(rf"^{_MARK} (?P<minor>\d+\.\d+)(?P<patch>\.\d+) (?P<path>\S.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialPython:
    """The Python of trials somewhere."""

    #: Major and minor, ``3.11``; empty: there is none, or it is not known.
    version: str = ""
    #: In words, ``Python 3.11.7 (/usr/bin/python3)``.
    words: str = ""
    #: Why it is not known; empty: it is, or there is none.
    doubt: str = ""

    def refusal(self, needed: str) -> str:
        """Why trials that need this version cannot run there; empty: they can, or that is not known."""
        if self.doubt or self.version == needed:
            return ""
        found = f"trials would run in {self.words}" if self.version else "trials find no python3 on their PATH"
        return f"{found}, and need Python {needed} ({_FIELD})"

    def advice(self, needed: str, how: str) -> str:
        """What to do after a refusal. `how`: what puts a Python first there, ``name the folder of {} in …``."""
        also = f" from Python {self.version}, or" if self.version else ""
        return (
            f"{how.format(f'a Python {needed}')}; a program that sends a function of its own can be run{also} with the"
            " function in a module, which every version reads"
        )

    def finding(self, subject: str, needed: str, how: str) -> PreflightFinding:
        """What a preflight says of it."""
        if wrong := self.refusal(needed):
            fix = self.advice(needed, how)
            return PreflightFinding(severity=Severity.WRONG, subject=subject, sentence=wrong, fix=fix)
        if not self.doubt:
            sentence = f"trials run in {self.words}, as {_FIELD} says"
            return PreflightFinding(severity=Severity.FINE, subject=subject, sentence=sentence)
        sentence = f"trials need Python {needed} ({_FIELD}), and which one they would find is not known: {self.doubt}"
        fix = "see to it yourself; a function that another version has sent is refused by its first trial"
        return PreflightFinding(severity=Severity.WARNING, subject=subject, sentence=sentence, fix=fix)


def program(command: str, *, path: str = "", dropped: Collection[str] = ()) -> str:
    """The text of the program that a Python of 3.7 or newer runs, in the environment that trials begin with.

    `command`: `QUESTION`, with what runs before every trial's command; `path`: folder that trials get in front of PATH;
    `dropped`: names of variables that they do not get.
    """
    settings = {"command": command, "path": path, "dropped": sorted(dropped), "limit_s": ANSWER_S}
    return f"SETTINGS = {settings!r}\n{_PROGRAM.read_text(encoding='utf-8')}"


async def ask_here(environment: Mapping[str, str]) -> TrialPython:
    """The Python of trials on this machine. `environment`: that they begin with."""
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
    """What the program has printed. Raises ValueError where that is no answer."""
    told = json.loads(line)
    if not isinstance(told, dict) or not isinstance(told.get("output"), str):
        raise ValueError("it says nothing that can be read")
    output, code = printable(told["output"]), told.get("exit_code")
    if found := _ANSWER.search(output):
        words = f"Python {found['minor']}{found['patch']} ({found['path'].strip()})"
        return TrialPython(version=found["minor"], words=words)
    if _NONE in output.splitlines():
        return TrialPython()
    ended = f"no answer within {ANSWER_S:.0f} s" if code is None else f"the command ended with exit code {code}"
    return TrialPython(doubt=ended)
