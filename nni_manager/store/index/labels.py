"""The labels of an experiment: notes of its users. They do not affect the experiment.

They are in the experiment's folder, in addition to the index: a lost index is rebuilt from the folders, and a copied
folder includes them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from nni_manager.domain.errors import InvalidInput, StoreUnavailable
from nni_manager.domain.text import require_text
from trial_runner.wire import foreign_files, full_disks

MOST_NOTES, MOST_TAGS, LONGEST_TAG = 10_000, 20, 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    #: Text of any number of lines; empty: none.
    notes: str = ""
    tags: tuple[str, ...] = ()
    #: Lists omit it by default.
    is_archived: bool = False

    def as_json(self) -> dict[str, Any]:
        return {"notes": self.notes, "tags": list(self.tags), "archived": self.is_archived}

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Self:
        """The labels that `as_json` returned. Raises InvalidInput."""
        return cls().changed(values)

    def changed(self, fields: Mapping[str, Any]) -> Self:
        """The labels with other ``notes``, ``tags`` or ``archived``, as far as given. Raises InvalidInput."""
        return replace(
            self,
            notes=_notes(fields["notes"]) if "notes" in fields else self.notes,
            tags=_tags(fields["tags"]) if "tags" in fields else self.tags,
            is_archived=_flag(fields["archived"]) if "archived" in fields else self.is_archived,
        )


def tags_in(text: str) -> list[str]:
    """The tags of a comma-separated text."""
    return [tag for part in text.split(",") if (tag := part.strip())]


def _notes(value: object) -> str:
    if not isinstance(value, str) or len(value) > MOST_NOTES:
        raise InvalidInput(f"notes: must be a text of at most {MOST_NOTES} characters")
    require_text("notes", value)
    return value.replace("\r\n", "\n").strip()


def _tags(value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(tag, str) for tag in value):
        raise InvalidInput("tags: must be a list of texts")
    found = tuple(dict.fromkeys(tag.strip() for tag in value))
    if len(found) > MOST_TAGS:
        raise InvalidInput(f"tags: there are {len(found)}; at most {MOST_TAGS} are allowed")
    for tag in found:
        if not 0 < len(tag) <= LONGEST_TAG or "," in tag or not tag.isprintable():
            raise InvalidInput(f"tags: {tag!r} must have 1 to {LONGEST_TAG} characters, and no comma or line break")
        require_text("tags", tag)
    return found


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidInput("archived: must be true or false")
    return value


FILE = "labels.json"
#: More than the size of the longest labels.
_MOST_BYTES = 256 * 1024


def read_labels(folder: Path) -> Labels:
    """The labels in a folder; missing or unreadable ones are empty."""
    try:
        text = foreign_files.read(os.path.realpath(folder), FILE, 0, _MOST_BYTES)
        values = json.loads(text)
        return Labels.parse(values) if isinstance(values, dict) else Labels()
    except (OSError, ValueError, InvalidInput):
        return Labels()


def write_labels(folder: Path, labels: Labels) -> None:
    """Writes them atomically. Raises StoreUnavailable."""
    text = json.dumps(labels.as_json(), ensure_ascii=False, indent=1)
    try:
        foreign_files.write_whole(os.path.realpath(folder), FILE, text.encode())
    except OSError as error:
        raise StoreUnavailable(
            f"notes and tags cannot be written to {folder / FILE} ({full_disks.reason(error, folder)})"
        ) from error
