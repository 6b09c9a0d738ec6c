"""Arguments that built-in tuners had in older versions of NNI → those of today."""

from __future__ import annotations

from collections.abc import Mapping

from nni_manager.config.reading.document import Path
from nni_manager.config.reading.source import Source

_PARALLEL, _LIAR = "parallel_optimize", "constant_liar_type"
#: Assumed result of running trials, by its name in TPE of NNI 2.0 to 2.5, which did not normalize the direction.
_MINIMIZING = {"min": "best", "max": "worst", "mean": "mean"}
_MAXIMIZING = {"min": "worst", "max": "best", "mean": "mean"}


def renewed(name: str, arguments: Mapping[str, object], path: Path, source: Source) -> dict[str, object]:
    """The arguments with older ones replaced and a warning for each. Unclear ones are kept and refused later.

    `name`: of the built-in tuner; `path`: of its arguments.
    """
    old = {key: arguments[key] for key in (_PARALLEL, _LIAR) if arguments.get(key) is not None}
    kept = {key: value for key, value in arguments.items() if key not in (_PARALLEL, _LIAR)}
    is_parallel, liar = old.get(_PARALLEL, False), old.get(_LIAR, "min")
    known = _MAXIMIZING if arguments.get("optimize_mode") == "maximize" else _MINIMIZING
    if name != "TPE" or not old or "tpe_args" in kept or not isinstance(is_parallel, bool) or liar not in known:
        return dict(arguments)
    now = known[str(liar)] if is_parallel else None
    for key in old:
        sentence = f"is an argument of NNI before 2.6; write tpe_args: {{{_LIAR}: {now or 'null'}}}"
        source.warn((*path, key), "OLD_NAME", sentence)
    return {**kept, "tpe_args": {_LIAR: now}}
