"""The file that a trial's command runs: a warning where the code directory does not have it."""

from __future__ import annotations

import os.path
import re
from collections.abc import Iterator, Mapping, Sequence

from nni_manager.config.reading.document import Path
from nni_manager.config.reading.source import Source

#: ``python3 -u train.py``, ``bash trial.sh`` or ``./trial``, where no folder was changed before.
_NAME = r"[\w.][\w./-]*"
_RUN_FILE = re.compile(
    rf"(?:python[\d.]*(?:\s+-[uBOEIsS]+)*\s+(?={_NAME}\.py\b)|(?:ba|da|z)?sh(?:\s+-[eux]+)*\s+|(?=\./))"
    rf"(?P<file>{_NAME})(?:\s|$)"
)


def check(fields: Mapping[str, object], sections: Sequence[Mapping[str, object]], source: Source) -> None:
    """Warns where the code directory lacks the file that a command runs. It only warns: an image may bring the file.

    `fields`: of the whole config.
    """
    for path, command, directory in _commands(fields, sections):
        found = _RUN_FILE.match(command)
        if found is None or not os.path.isdir(directory):
            continue
        if not os.path.exists(os.path.join(directory, found["file"])):
            sentence = f"runs {found['file']}, which is not in the code directory {directory}; trials fail without it"
            source.warn(path, "NO_TRIAL_FILE", sentence)


def _commands(
    fields: Mapping[str, object], sections: Sequence[Mapping[str, object]]
) -> Iterator[tuple[Path, str, str]]:
    """The commands of trials: (where it is written, the command, the code directory that it runs in).

    The first is the top level's; then come those of services that have a command or code directory of their own.
    """
    told = fields.get("trialCommand"), fields.get("trialCodeDirectory")
    found: list[tuple[Path, object, object]] = [(("trialCommand",), *told)]
    for section in sections:
        own = section.get("trialCommand", told[0]), section.get("trialCodeDirectory", told[1])
        found += [(("trainingService", "trialCommand"), *own)] if own != told else []
    return (
        (path, command, code) for path, command, code in found if isinstance(command, str) and isinstance(code, str)
    )
