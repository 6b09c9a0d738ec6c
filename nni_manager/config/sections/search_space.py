"""Reads a config's search space from `searchSpace` or the file `searchSpaceFile`.

Dimensions are checked for built-in tuners; a user's tuner may define its own types.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property

from nni_manager.config.reading import scalars
from nni_manager.config.reading.document import MAX_DEPTH, Document, Path, Unreadable
from nni_manager.config.reading.scalars import mapping, text
from nni_manager.config.reading.source import MAX_SEARCH_SPACE_BYTES, Source, read_text, spell
from nni_manager.config.sections.section import Section
from nni_manager.domain.algorithm import AlgorithmSpec
from nni_manager.domain.errors import BadDimension, ConfigInvalid, InvalidInput, Problem
from nni_manager.domain.experiment import ConfigWarning
from nni_manager.domain.space import search_space
from nni_manager.domain.space.dimension import Choice
from nni_manager.domain.space.search_space import SearchSpace
from nni_manager.tuners.registry import CATALOGUE as TUNERS
from nni_manager.tuners.registry import create


def read_search_space(top: Section, source: Source) -> dict[str, object] | None:
    """The search space of a config. None if it is missing or invalid; that is noted in `source`."""
    if _is_in_file(top, source):
        if top.has("searchSpace"):
            source.warn(
                ("searchSpace",), "NO_EFFECT", "is ignored because searchSpaceFile is set; remove one of the two"
            )
        path = top.take("searchSpaceFile", lambda raw: _existing_file(raw, source))
        return _from_file(path, source) if path else None
    if not top.has("searchSpace"):
        top.require("searchSpace", "give it here, or name a searchSpaceFile; an empty one is {}")
    return top.take("searchSpace", _usable)


def _is_in_file(top: Section, source: Source) -> bool:
    """Whether the file is used. NNI stores its content next to its name."""
    return top.has("searchSpaceFile") and not (source.stored and top.has("searchSpace"))


def check_search_space(space: object, tuner: object) -> SearchSpace | None:
    """The space as the named built-in tuner searches it; None for another tuner.

    Raises BadDimension for the first dimension that the tuner cannot search.
    """
    known = TUNERS.look_up(tuner) if isinstance(tuner, str) and tuner in TUNERS.names else None
    return None if known is None or known.has_own_space or space is None else search_space.parse(space)


def check_whole(space: object, tuner: AlgorithmSpec) -> None:
    """Raise InvalidInput if a built-in tuner cannot search the space."""
    check_search_space(space, tuner.name)
    if tuner.name in TUNERS.names:
        create(tuner).update_search_space(space)


def judge_dimensions(space: Mapping[str, object], tuner: object, top: Section, source: Source) -> None:
    """Note, with their lines, the dimensions that the tuner cannot search and probable mistakes."""
    file = _File(source.path(str(top.raw("searchSpaceFile")))) if _is_in_file(top, source) else None
    for name, dimension in space.items():
        try:
            _warn_of_mixed(check_search_space({name: dimension}, tuner), file, source)
        except BadDimension as error:
            _refuse(error, file, source)


def judge_whole(space: Mapping[str, object], tuner: AlgorithmSpec, top: Section, source: Source) -> None:
    """Note why a built-in tuner cannot be created, or cannot search the space as a whole.

    Call it only if tuner and search space have no other problems.
    """
    if tuner.name not in TUNERS.names:
        return
    try:
        made = create(tuner)
    except InvalidInput as error:
        source.refuse(("advisor" if top.has("advisor") else "tuner", "name"), str(error).removeprefix("name: "))
        return
    try:
        made.update_search_space(space)
    except InvalidInput as error:
        field = "searchSpaceFile" if _is_in_file(top, source) else "searchSpace"
        source.refuse((field,), str(error).removeprefix("searchSpace").lstrip(": "))


_MIXED_CHOICE = "MIXED_CHOICE"
_MIXED = (
    "mixes mappings without _name, which trials get unchanged, with other elements; for parameters that"
    " belong to one choice, make every element a mapping with a _name"
)


def _warn_of_mixed(space: SearchSpace | None, file: _File | None, source: Source) -> None:
    """Warn of choices that mix mappings and other values, which are probably meant as branches."""
    for place in space.places if space is not None else ():
        options = place.dimension.options if isinstance(place.dimension, Choice) else ()
        if len({isinstance(option, Mapping) for option in options}) < 2:
            continue
        path = _written(place.key)
        if file is None:
            source.warn(("searchSpace", *path), _MIXED_CHOICE, _MIXED)
        else:
            spelled, line = file.locate(path)
            field = spell(spelled)
            source.pass_on(ConfigWarning(code=_MIXED_CHOICE, message=_MIXED, field=field, file=file.path, line=line))


def _existing_file(raw: object, source: Source) -> str:
    if not source.stored:
        scalars.refuse_placeholders(raw)
    return source.existing_file(text(raw))


def _refuse(error: BadDimension, file: _File | None, source: Source) -> None:
    path = _written(error.key)
    if file is None:
        source.refuse(("searchSpace", *path), error.reason)
        return
    spelled, line = file.locate(path)
    source.adopt(Problem(message=error.reason, field=spell(spelled), file=file.path, line=line))


def _written(key: search_space.Key) -> Path:
    """The path of a dimension in the JSON. A branch is an index in the nested choice's `_value`."""
    return tuple(part for step in key for part in (("_value", step) if isinstance(step, int) else (step,)))


class _File:
    """The file of a search space, parsed again for line numbers when a problem is reported."""

    def __init__(self, path: str) -> None:
        self.path = path

    def locate(self, path: Path) -> tuple[Path, int]:
        """The path as spelled and its line, as by `Document.locate`; line 0 if it is unknown."""
        return self._document.locate(path) if self._document is not None else (path, 0)

    @cached_property
    def _document(self) -> Document | None:
        from nni_manager.config.reading.yaml_reader import parse

        try:
            return parse(read_text(self.path, MAX_SEARCH_SPACE_BYTES))
        except (Unreadable, ConfigInvalid):
            return None


def _usable(raw: object) -> dict[str, object]:
    space = mapping(raw)
    _check_finite(space)
    return space


def _from_file(path: str, source: Source) -> dict[str, object] | None:
    try:
        return _load(read_text(path, MAX_SEARCH_SPACE_BYTES), path, source)
    except ConfigInvalid as error:
        for problem in error.problems:
            source.adopt(replace(problem, field="searchSpaceFile"))
    except Unreadable as error:
        source.adopt(Problem(message=error.message, field="searchSpaceFile", file=path, line=error.line))
    return None


def _load(content: str, path: str, source: Source) -> dict[str, object] | None:
    """The search space in a file's content, JSON or YAML; None if it is refused. Raises Unreadable."""
    try:
        value = json.loads(content, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        value = _load_yaml(content, path, source, error)
    try:
        return _usable(value)
    except ValueError as error:
        source.adopt(Problem(message=str(error), field="searchSpaceFile", file=path, line=1))
        return None


def _load_yaml(content: str, path: str, source: Source, json_error: Exception) -> object:
    from nni_manager.config.reading.yaml_reader import parse  # the YAML library, only where there is YAML to read

    try:
        document = parse(content)
    except Unreadable as yaml_error:
        raise _clearer(content, yaml_error, json_error) from None
    for _, line, message in document.faults:
        source.adopt(Problem(message=message, field="searchSpaceFile", file=path, line=line))
    return document.root.value


def _clearer(content: str, yaml_error: Unreadable, json_error: Exception) -> Unreadable:
    if content.lstrip().startswith("{") and isinstance(json_error, json.JSONDecodeError):
        return Unreadable(f"not valid JSON: {json_error.msg}; check commas, quotes and brackets", json_error.lineno)
    return yaml_error


def _unique(pairs: Iterable[tuple[str, object]]) -> dict[str, object]:
    pairs = list(pairs)
    if len(result := dict(pairs)) < len(pairs):
        raise ValueError("a key is given twice")  # the YAML reader, which is tried next, knows its line
    return result


def _check_finite(value: object, depth: int = 0) -> None:
    if depth > MAX_DEPTH:
        raise ValueError(f"is nested more than {MAX_DEPTH} levels deep")
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            _check_finite(item, depth + 1)
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError("holds a number that is infinite or not a number; use finite ones")
