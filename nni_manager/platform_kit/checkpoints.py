"""Checkpoints of trials that have ended: handed on to a trial that continues the configuration, or removed.

A checkpoint is handed on by shell text before the command.
The job copies it itself: it alone surely has both folders, and the right to read and write them. A mark tells a copy
that was cut short; the next attempt begins it anew. Processes that do not report leave it to the one that does.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from nni_manager.domain.ids import checkpoint_directory_of
from trial_runner import protocol
from trial_runner.wire import removal

_COPY = """\
case "${sys}" in */{replicas}/*) ;; *)
if [ -e "${own}/{mark}" ] || [ -z "$(ls -A "${own}")" ]; then
    {{ : > "${own}/{mark}" && cp -R "${{{own}%/*}}/{earlier}/." "${own}/" && rm -f "${own}/{mark}"; }} || {{
        rm -rf "${own}"/* "${own}"/.[!.]*
        echo {words} >&2
    }}
fi ;; esac
"""


def copy_from(trial_id: str) -> str:
    """Shell text that fills a trial's empty checkpoint folder from another trial's, and says so where it cannot."""
    words = f"{protocol.ENV_CHECKPOINT_DIR}: the checkpoint of trial {trial_id} is not here; this trial begins without"
    return _COPY.format(
        sys=protocol.ENV_SYSTEM_DIR,
        own=protocol.ENV_CHECKPOINT_DIR,
        replicas=protocol.REPLICAS_FOLDER,
        mark=protocol.CHECKPOINT_COPYING,
        earlier=checkpoint_directory_of(trial_id),
        words=shlex.quote(words),
    )


def remove(folders: Iterable[str]) -> dict[str, str]:
    """Removes folders of this machine, which trials have written; answers why, of those that stay. Blocks."""
    stays = {folder: "; ".join(removal.remove(folder)) for folder in folders}
    return {folder: why for folder, why in stays.items() if why}
