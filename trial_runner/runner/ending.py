"""The platform's notice that it will soon take the job away: SIGUSR1, whose default action would end the runner.

Slurm sends it with ``--signal=B:USR1@60``, before a job's time limit and before its preemption. The file
`protocol.ENDING_FILE` tells the command. The signal goes on only to processes that catch it: it would end the others.
A start script ignores the signal until the runner hears it: ``trap '' USR1; exec python3 runner.pyz``.
"""

import os
import signal
import time
from typing import Callable

from trial_runner import protocol
from trial_runner.runner.settings import Settings
from trial_runner.wire import foreign_files
from trial_runner.wire.descriptors import Descriptor

SIGNAL = signal.SIGUSR1
#: What the trial's log and the job's output say.
_SENTENCE = "The platform will soon take this job away."
_APPENDING = os.O_WRONLY | os.O_CREAT | os.O_APPEND


class EndingNotice:
    """Hears the notice until the loop of a run does."""

    def __init__(self) -> None:
        self.is_given = False

    def listen(self) -> None:
        """Installs the handler; called before anything is started, as the notice may come at any time."""
        signal.signal(SIGNAL, self._hear)

    def _hear(self, number: int, frame: object) -> None:
        self.is_given = True


def forget_earlier(folder: str) -> None:
    """Removes the notice that an earlier container of this folder got. Raises OSError."""
    foreign_files.remove(folder, protocol.ENDING_FILE)


def note(settings: Settings, say: Callable[[str], None]) -> None:
    """Tells the command, the trial's log and the job's output."""
    say(_SENTENCE)
    try:
        foreign_files.write_whole(settings.system_dir, protocol.ENDING_FILE, b"", 0o666)
        _log(settings.output_dir)
    except OSError as error:
        say("The notice cannot be written: {}".format(error))


def _log(folder: str) -> None:
    line = time.strftime("[%Y-%m-%d %H:%M:%S] WARNING (trial_runner) ") + _SENTENCE + "\n"
    with Descriptor(foreign_files.open_file(folder, protocol.TRIAL_LOG_FILE, _APPENDING, 0o666)) as file:
        foreign_files.write_all(file, line.encode())
