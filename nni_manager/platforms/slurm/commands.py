"""The commands of Slurm as shell text, and what their failures mean.

No secret is on a command line: the accounting keeps that of `sbatch`, readable for everybody.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Collection, Sequence

from nni_manager.domain.errors import NniManagerError, PlatformUnavailable, SubmitRejected
from nni_manager.domain.service import Wait, WaitCode
from nni_manager.machines.shell import Answer, NoAnswer
from nni_manager.platform_kit.contract import NoRoom
from nni_manager.platforms.slurm.listing import EVERY_STATE, QUEUE_FORMAT, RECORD_FORMAT

#: Seconds after which `sbatch` is ended: on its own it retries for two minutes.
SUBMIT_S = 45
#: Seconds for other commands; those of a controller that is away take 9.
ASK_S = 25.0
#: Exit codes of `timeout`, of a shell without the command, and of commands that a signal ended.
_TIMED_OUT, _NO_COMMAND, _SIGNALS = 124, 127, range(129, 193)
_AWAY = re.compile(
    r"Unable to contact|Connection refused|Zero Bytes were transmitted|Socket timed out|Unable to connect"
)
_CERTAINLY_REFUSED = re.compile(r"Unable to contact slurm controller \(connect failure\)")
_BUSY = re.compile(r"temporarily unable to accept|job queue full|Resource temporarily unavailable")
_NO_ROOM = re.compile(r"MaxSubmit|GrpSubmit|job submit limit|Too many jobs")
_PREFIX = re.compile(r"^(sbatch|squeue|sacct|scancel|scontrol|sinfo|sacctmgr): (error: )?")
_ID = re.compile(r"^(\d+)(;.*)?$", re.MULTILINE)


def submission(arguments: Sequence[str]) -> str:
    """`sbatch`, with the script on stdin. `exec`: nothing is left to continue without it."""
    return f"exec timeout -k 5 {SUBMIT_S} sbatch --parsable {shlex.join(arguments)}"


def queue(name: str = "") -> str:
    """All jobs of the account, also ended ones that the controller remembers; `name`: only those of that name.

    Times are in UTC."""
    named = f" --name={shlex.quote(name)}" if name else ""
    return (
        "exec env TZ=UTC0 SLURM_TIME_FORMAT=standard"
        f" squeue --noheader --states=all --me{named} --Format={shlex.quote(QUEUE_FORMAT)}"
    )


def records(ids: Collection[str]) -> str:
    """The accounting's rows of jobs."""
    return f"exec sacct -X -n -P -D --jobs={','.join(ids)} --format={RECORD_FORMAT}"


def records_of(name: str, age_s: float) -> str:
    """The accounting's rows of jobs of that name that are at most `age_s` seconds old, and an hour more."""
    hours = math.ceil(age_s / 3600) + 1
    return (
        f"exec sacct -X -n -P -D --name={shlex.quote(name)} --starttime=now-{hours}hours --endtime=now"
        f" --state={EVERY_STATE} --format={RECORD_FORMAT}"
    )


def ask_to_end(ids: Collection[str]) -> str:
    """Cancels jobs that wait or are suspended, and sends SIGTERM to the trial runners of the others.

    A signal to the batch step of a suspended job makes `scancel` retry without end."""
    listed = " ".join(ids)
    ended = "; ".join(f"scancel --quiet --state={state} {listed}" for state in ("PENDING", "SUSPENDED"))
    return f"{ended}; exec scancel --quiet --state=RUNNING --batch --signal=TERM {listed}"


def end(ids: Collection[str]) -> str:
    """Cancels jobs; processes get SIGKILL after the cluster's KillWait."""
    return f"exec scancel --quiet {' '.join(ids)}"


#: The release, the home folder and the settings of the cluster.
FACTS = 'sinfo --version || exit; echo "HOME = $HOME"; exec scontrol show config'


def submitted(answer: Answer) -> str | NoRoom:
    """The id of an accepted job, or no room. Raises SubmitRejected, PlatformUnavailable."""
    found = _ID.search(answer.text)
    if answer.rc == 0 and found is not None:
        return found[1]
    complaint = answer.complaint
    if answer.rc == 0:
        raise NoAnswer("sbatch printed no job id")
    if _NO_ROOM.search(complaint):
        return NoRoom(why=Wait(code=WaitCode.QUOTA, sentence=f"Slurm takes no further job: {shown(complaint)}"))
    if not _was_cut_off(answer) and not _AWAY.search(complaint) and not _BUSY.search(complaint):
        raise SubmitRejected(f"Slurm refused the job: {shown(complaint) or f'exit code {answer.rc}'}")
    raise fault_of(answer, "sbatch")


def _was_cut_off(answer: Answer) -> bool:
    """Whether the command ended without an answer: by its time limit or a signal, or because it is missing."""
    return answer.rc in (_TIMED_OUT, _NO_COMMAND) or answer.rc in _SIGNALS


def require(answer: Answer, program: str) -> Answer:
    """The answer of a successful command. Raises PlatformUnavailable."""
    if answer.rc != 0:
        raise fault_of(answer, program)
    return answer


def fault_of(answer: Answer, program: str) -> NniManagerError:
    """The error of a command that could not be carried out."""
    complaint = answer.complaint
    if answer.rc == _NO_COMMAND:
        return PlatformUnavailable(
            f"{program} is not on the PATH of the login shell; use a login node, or add its folder to ~/.bash_profile",
            refused=True,
        )
    if answer.rc == _TIMED_OUT:
        return NoAnswer(f"{program}: no answer within {SUBMIT_S} s")
    if _was_cut_off(answer):
        return NoAnswer(f"{program} was ended: exit code {answer.rc}")
    is_refused = bool(_CERTAINLY_REFUSED.search(complaint))
    return PlatformUnavailable(f"{program}: {shown(complaint) or f'exit code {answer.rc}'}", refused=is_refused)


def is_away(answer: Answer) -> bool:
    """Whether a command failed because the controller did not answer."""
    return _was_cut_off(answer) or bool(_AWAY.search(answer.complaint))


def shown(complaint: str) -> str:
    """The sentences of a complaint on one line, without the program's name, each once."""
    lines = [_PREFIX.sub("", line.strip()) for line in complaint.splitlines() if line.strip()]
    return "; ".join(dict.fromkeys(lines))[:400]
