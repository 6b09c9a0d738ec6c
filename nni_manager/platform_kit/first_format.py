"""A platform's part of NNI's first config format: tables, which each platform keeps beside its model.

A path is dotted; ``[]`` after a name stands for every entry of a list. On the left it starts at the top of the file, as
in ``machineList[].ip``; on the right in the platform's section, or, with a `/` before it, at the top of the config.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

#: (path in the file, sentence).
Remark = tuple[str, str]

#: A trial's own fields where one command, one folder and one number of GPUs are all there is.
TRIAL: Mapping[str, str] = {
    "trial.command": "/trialCommand",
    "trial.codeDir": "/trialCodeDirectory",
    "trial.gpuNum": "/trialGpuNumber",
}

_NAS = "neural architecture search is not supported"


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstFormat:
    """One platform's part of NNI's first config format."""

    #: Path in the file → path in the config. Where two lead to one place, the one that comes first counts.
    fields: Mapping[str, str]
    #: Paths in the file that must be set, unless a list or mapping above them is not there.
    required: tuple[str, ...] = ()
    #: Paths in the file that nothing comes of → why.
    dropped: Mapping[str, str] = field(default_factory=dict)
    #: Completes the section, after all fields are in it, and the top of the config.
    complete: Callable[[dict[str, Any], dict[str, Any]], None] = lambda _section, _config: None
    #: Faults of a file beside those of the section: (path in the file, sentence).
    faults: Callable[[Mapping[str, Any]], Iterable[Remark]] = lambda _file: ()
    #: Paths in the section that NNI 3.0 does not know; it runs without them.
    ours: tuple[str, ...] = ()
    #: Fields of the section with which NNI 3.0 cannot run the file at all.
    only_here: tuple[str, ...] = ()
    #: Completes a copy of the section, given the top of the config, with fields that only NNI 3.0 needs.
    complete_for_nni: Callable[[dict[str, Any], dict[str, Any]], None] = lambda _section, _config: None


#: `trial.nasMode` belongs to several platforms.
NAS_MODE: Mapping[str, str] = {"trial.nasMode": _NAS}
