"""The Python of trials on a machine, asked for by a login of its own: a server may allow one session per login."""

from __future__ import annotations

from nni_manager.machines.ssh.address import Entry
from nni_manager.machines.ssh.bootstrap import first_line
from nni_manager.machines.ssh.faults import MachineFault
from nni_manager.machines.ssh.login import log_in
from nni_manager.platform_kit import trial_python
from nni_manager.platform_kit.trial_python import TrialPython
from nni_manager.platforms.remote import job

#: What puts another Python first.
HOW = "name the folder of {} in `pythonPath` of that machine"
#: Seconds for the answer and the start of what asks.
_LIMIT_S = trial_python.ANSWER_S + 4.0


async def ask(entry: Entry) -> TrialPython:
    """The Python of trials there, found as their commands find it: after `preCommand`, with `pythonPath` in front of
    PATH.

    Raises MachineFault.
    """
    text = trial_python.program(
        job.command(trial_python.QUESTION, entry.pre_command),
        path=job.folder_of_python(entry.python_path, "~") if entry.python_path else "",
        dropped=job.OF_THE_SESSION,
    )
    connection = await log_in(entry.address, entry.credential)
    try:
        return trial_python.answer_of(
            await first_line(connection, text, python_path=entry.python_path, limit_s=_LIMIT_S)
        )
    except ValueError as error:
        return TrialPython(doubt=str(error))
    finally:
        connection.abort()


async def trouble(entry: Entry, needed: str) -> str:
    """Why trials that need a version of Python get no place there, with what to do; empty: they do, or need none.

    The preflight has asked all machines but those that were away then, and new ones. Raises PlatformError.
    """
    if not needed or entry.is_drained:
        return ""
    try:
        found = await ask(entry)
    except MachineFault as error:
        raise error.fault.error(entry.address.host) from error
    wrong = found.refusal(needed)
    return wrong and f"{wrong}; {found.advice(needed, HOW)}"
