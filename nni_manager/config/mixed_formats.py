"""Files that mix NNI's two formats: each line that belongs to the other one is named, with what tells them apart."""

from __future__ import annotations

from collections.abc import Mapping

from nni_manager.config import dialect_v1, dialect_v2
from nni_manager.config.document import Document, fold
from nni_manager.config.first_format_paths import KINDS, split
from nni_manager.config.source import Source
from nni_manager.platform_kit import registry

#: Sections that both formats have.
_IN_BOTH = {fold(name) for name in (*KINDS, "sharedStorage")}
#: What makes a file one of the second format.
_SECOND = ("trainingService", "trialCommand", "trialCodeDirectory", "searchSpaceFile", "searchSpace")


def refuse(values: Mapping[str, object], document: Document, source: Source) -> None:
    """Notes a problem for every field of the other format at the top level."""
    first = {fold(name): new for name, new in dialect_v1.top_names().items()}
    second = {fold(name): name for name in dialect_v2.FIELDS}
    unknown = [key for key in values if fold(key) not in first.keys() | second.keys()]
    of_platforms = _of_platforms() if unknown else {}
    if dialect_v1.is_first_format(values):
        mark = f"{dialect_v1.PLATFORM} in line {_line(document, dialect_v1.PLATFORM)} makes this file one of the first"
        for key in values:
            if fold(key) in second.keys() - first.keys() - _IN_BOTH:
                source.refuse((key,), f"belongs to NNI's second config format, and {mark}; {_instead(key)}")
        return
    mark = _mark(values, document)
    for key in values:
        if fold(key) in first.keys() - second.keys():
            source.refuse((key,), f"belongs to NNI's first config format, {mark}; here it is {first[fold(key)]}")
        elif fold(key) in of_platforms:
            source.refuse(
                (key,), f"belongs to NNI's first config format, {mark}; here it is a part of trainingService: "
                f"{{platform: {of_platforms[fold(key)]}}}",
            )  # fmt: skip


def _of_platforms() -> dict[str, str]:
    """Sections at the top of a file of the first format → whose they are."""
    found = {}
    for one in registry.descriptions():
        for pattern in one.first_format.fields if one.first_format else ():
            found[fold(split(pattern)[0])] = one.name
    return found


def _mark(values: Mapping[str, object], document: Document) -> str:
    key = next((key for name in _SECOND for key in values if fold(key) == fold(name)), None)
    if key is None:
        return f"which needs {dialect_v1.PLATFORM}"
    return f"and {key} in line {_line(document, key)} makes this file one of the second"


def _instead(key: str) -> str:
    olds = [old for old, new in dialect_v1.top_names().items() if fold(new) == fold(key)]
    return f"there it is {olds[0]}" if olds else "keep one format"


def _line(document: Document, key: str) -> int:
    return document.locate((key,))[1]
