"""The Python of trials on a machine. Logs in separately: a server may allow only one session per login."""

from __future__ import annotations

from pathlib import PurePosixPath

from nni_manager.machines.ssh.address import Entry
from nni_manager.machines.ssh.bootstrap import first_line
from nni_manager.machines.ssh.faults import MachineFault
from nni_manager.platform_kit import trial_python
from nni_manager.platform_kit.trial_python import TrialPython

#: Variables of the login session that trials do not get.
OF_THE_SESSION = frozenset(
    {"SSH_CLIENT", "SSH_CONNECTION", "SSH_TTY", "SSH_ORIGINAL_COMMAND", "OLDPWD", "PWD", "SHLVL"}
)
#: How to select another Python.
HOW = "set `pythonPath` of that machine to the folder of {}"
#: Seconds for the answer, including the start of the program that asks.
_LIMIT_S = trial_python.ANSWER_S + 4.0


async def ask(entry: Entry) -> TrialPython:
    """The Python of trials there, found as by their commands: after `preCommand`, with `pythonPath` prepended to
    PATH.

    Raises MachineFault.
    """
    text = trial_python.program(
        command_of(trial_python.QUESTION, entry.pre_command),
        path=folder_of_python(entry.python_path, "~") if entry.python_path else "",
        dropped=OF_THE_SESSION,
    )
    try:
        return trial_python.answer_of(await first_line(entry, text, _LIMIT_S))
    except ValueError as error:
        return TrialPython(doubt=str(error))


async def trouble(entry: Entry, needed: str) -> str:
    """Why trials that need a version of Python get no place there, with what to do; empty: no reason.

    The preflight checked all machines except those that were unreachable, and new ones. Raises PlatformError.
    """
    if not needed or entry.is_drained:
        return ""
    try:
        found = await ask(entry)
    except MachineFault as error:
        raise error.fault.error(entry.address.host) from error
    wrong = found.refusal(needed)
    return wrong and f"{wrong}; {found.advice(needed, HOW)}"


def command_of(command: str, before: str) -> str:
    """The trial's command after `preCommand`; if that fails, the trial fails."""
    if not before:
        return command
    return f"{before.rstrip()}\n_nni_status=$?; [ $_nni_status = 0 ] || exit $_nni_status\n{command}"


def folder_of_python(python_path: str, home: str) -> str:
    """The folder that is prepended to PATH. If `pythonPath` is an interpreter: the folder of the interpreter."""
    path = f"{home}/{python_path[2:]}" if python_path.startswith("~/") else python_path
    name = PurePosixPath(path).name
    return str(PurePosixPath(path).parent) if name.startswith("python") and "/bin/" in path else path
