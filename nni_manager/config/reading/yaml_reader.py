"""A text in YAML or JSON, read here or, where it is large, in a process of its own."""

from __future__ import annotations

from nni_manager.config.reading import yaml_parser, yaml_process
from nni_manager.config.reading.document import Document, Unreadable
from nni_manager.config.reading.source import LARGE_CHARACTERS
from nni_manager.domain.errors import ConfigInvalid, Problem


def read(text: str, file: str) -> Document:
    """The document in a text that messages call `file`. Raises ConfigInvalid."""
    try:
        return parse(text)
    except Unreadable as error:
        raise ConfigInvalid([Problem(message=error.message, file=file, line=error.line)]) from None


def parse(text: str) -> Document:
    """The document in a text, which is one document of YAML or JSON. Raises Unreadable.

    A large one is read in a process of its own, which can be ended.
    """
    if len(text) <= LARGE_CHARACTERS:
        return yaml_parser.parse_here(text)
    return yaml_process.parse(text)
