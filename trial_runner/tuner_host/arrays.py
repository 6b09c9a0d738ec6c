"""numpy's arrays as NNI's SDK writes them into JSON, which users' classes expect as arrays."""

from __future__ import annotations

from typing import Dict

_ITEMS = "__ndarray__"


def restored(value: object) -> object:
    """The same value with its arrays made; as it is where there is no numpy."""
    if isinstance(value, dict):
        if _ITEMS in value:
            return _array(value)
        return {key: restored(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [restored(inner) for inner in value]
    return value


def _array(written: Dict[str, object]) -> object:
    """`written`: the items in lists, their ``dtype`` and the array's ``shape``; one without any may lack both."""
    try:
        import numpy

        made = numpy.asarray(written[_ITEMS], dtype=written.get("dtype"))  # type: ignore[call-overload]
        return made.reshape(written.get("shape", made.shape))
    except (ImportError, TypeError, ValueError):  # somebody's own dictionary
        return written
